"""Hook folders: `hooks/<name>/HOOK.md` with a program beside it that is told what happens.

A hook is a process of its own. It gets the event as JSON on its standard input. Where it prints a JSON object it may
say something to the person, or name files of the workspace for the prompt; it can change nothing else, and whatever
it does or breaks stays its own affair.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from pydantic import ValidationError

from retinue.automation.programs import Program, ask_program
from retinue.core.errors import RetinueError
from retinue.security.untrusted_text import sanitise
from retinue.skills.front_matter import Extras
from retinue.skills.skill import Requirements
from retinue.storage.frontmatter import FrontMatterError, parse_yaml, split_front_matter

DECLARATION = "HOOK.md"
HANDLERS = ("handler", "handler.py", "handler.sh")
SECONDS = 10.0
MOST_BYTES = 64 * 1024
MOST_FOLDERS = 100
MOST_MESSAGES = 5
MOST_MESSAGE_CHARS = 2_000
MOST_FILES = 20
BOOTSTRAP = "agent:bootstrap"
EVENTS = (
    "command:new",
    "command:reset",
    "command:stop",
    "session:start",
    "session:end",
    "session:auto-reset",
    "session:compact:before",
    "session:compact:after",
    "message:received",
    "message:sent",
    BOOTSTRAP,
    "agent:turn-end",
    "gateway:startup",
    "gateway:shutdown",
    "gateway:pre-restart",
)
"""What a hook can be told of; `command` alone stands for all that begin with it, and any command has an event."""

_ANY_COMMAND = re.compile(r"command:[a-z0-9_-]+")


class HookFolderError(RetinueError):
    """A hook folder cannot be used; the message says why."""


class HookFolder(Struct, frozen=True):
    """A hook that can run; one that Retinue brings has no program."""

    name: str
    description: str
    events: tuple[str, ...]
    folder: Path
    handler: Path | None = None
    needs: Requirements = field(default_factory=Requirements)
    always: bool = False

    def wants(self, event: str) -> bool:
        return any(event == wanted or event.startswith(f"{wanted}:") for wanted in self.events)


class HookReply(Struct, frozen=True):
    """What a hook said: words for the person, and paths in the workspace for the prompt."""

    messages: tuple[str, ...] = ()
    bootstrap_files: tuple[str, ...] = ()


def find_folders(root: Path) -> Iterator[Path]:
    """The folders beneath `root` that declare a hook, in order of their names."""
    with suppress(OSError):
        entries = sorted(path for path in root.iterdir() if (path / DECLARATION).is_file())
        yield from entries[:MOST_FOLDERS]


def read_folder(folder: Path, *, bundled: bool = False) -> HookFolder:
    """The hook in a folder; raises `HookFolderError` where it cannot be used."""
    declared = _read_declaration(folder)
    metadata = declared.get("metadata")
    ours = _namespace(metadata) if isinstance(metadata, Mapping) else {}
    listed = ours.get("events")
    events = tuple(str(event) for event in listed) if isinstance(listed, list) else ()
    if not events:
        raise HookFolderError(f"{folder / DECLARATION} names no events (metadata.retinue.events).")
    strange = [event for event in events if not _is_event(event)]
    if strange:
        raise HookFolderError(f"{folder / DECLARATION}: there is no event '{strange[0]}'. Events: {', '.join(EVENTS)}.")
    handler = next((folder / name for name in HANDLERS if os.access(folder / name, os.X_OK)), None)
    if handler is None and not bundled:
        raise HookFolderError(f"{folder} has no program to run: put an executable file `handler` beside {DECLARATION}.")
    try:
        extras = Extras.model_validate(dict(ours))
    except ValidationError as error:
        raise HookFolderError(f"{folder / DECLARATION}: metadata.retinue cannot be read: {error}") from error
    wanted = extras.requires
    needs = Requirements(extras.os, wanted.bins, wanted.any_bins, wanted.env, wanted.config)
    description = str(declared.get("description") or "")
    return HookFolder(folder.name, description, events, folder, handler, needs, extras.always)


def _read_declaration(folder: Path) -> Mapping[str, Any]:
    try:
        text = (folder / DECLARATION).read_bytes()[:MOST_BYTES].decode("utf-8")
        front, _ = split_front_matter(text)
        return parse_yaml(front) if front is not None else {}
    except (OSError, UnicodeDecodeError, FrontMatterError) as error:
        raise HookFolderError(f"{folder / DECLARATION} cannot be read: {error}") from error


def _is_event(event: str) -> bool:
    known = any(each == event or each.startswith(f"{event}:") for each in EVENTS)
    return known or _ANY_COMMAND.fullmatch(event) is not None


async def tell_hook(hook: HookFolder, event: Mapping[str, Any], environment: Mapping[str, str]) -> HookReply:
    """Run a hook for an event, for a while; raises `ProgramFailed` where it does not end well."""
    assert hook.handler is not None, f"the bundled hook {hook.name} is no program"
    program = Program(f"The hook {hook.name}", [str(hook.handler)], hook.folder, environment, SECONDS)
    return read_reply(await ask_program(program, event))


def read_reply(printed: str) -> HookReply:
    """What a hook said with a JSON object; anything else that it prints is its own affair."""
    try:
        said = json.loads(printed)
    except (ValueError, RecursionError):
        return HookReply()
    if not isinstance(said, dict):
        return HookReply()
    messages = [sanitise(text)[:MOST_MESSAGE_CHARS] for text in _texts(said.get("messages"))]
    return HookReply(tuple(messages[:MOST_MESSAGES]), tuple(_texts(said.get("bootstrapFiles"))[:MOST_FILES]))


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str) and text.strip()] if isinstance(value, list) else []


def _namespace(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("retinue", "openclaw"):
        found = metadata.get(name)
        if isinstance(found, Mapping):
            return found
    return {}
