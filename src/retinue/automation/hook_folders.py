"""Hook folders: `hooks/<name>/HOOK.md` with a program that is run for events.

A hook runs as a separate process and gets the event as JSON on its standard input. If it prints a JSON object, that can
contain messages for the person, and files of the workspace for the prompt. A failing hook affects nothing else.
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

from retinue.automation.external_program import ExternalProgram, run_json_program
from retinue.core.errors import RetinueError
from retinue.security.untrusted_text import sanitise
from retinue.skills.skill import Extras, Requirements
from retinue.storage.frontmatter import FrontMatterError, parse_yaml, split_front_matter
from retinue.structs.decode import DecodeError, decode

DECLARATION = "HOOK.md"
HANDLERS = ("handler", "handler.py", "handler.sh")
SECONDS = 10.0
MAX_BYTES = 64 * 1024
MAX_FOLDERS = 100
MAX_MESSAGES = 5
MAX_MESSAGE_CHARS = 2_000
MAX_FILES = 20
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
"""The events of hooks. A prefix such as `command` stands for all events below it; every command has an event."""

_ANY_COMMAND = re.compile(r"command:[a-z0-9_-]+")


class HookFolderError(RetinueError):
    """A hook folder cannot be used; the message says why."""


class HookFolder(Struct, frozen=True):
    """A hook that can run; a bundled one has no program."""

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
    """The output of a hook: messages for the person, and paths in the workspace for the prompt."""

    messages: tuple[str, ...] = ()
    bootstrap_files: tuple[str, ...] = ()


def find_folders(root: Path) -> Iterator[Path]:
    """Yield the folders below `root` that declare a hook, sorted by name."""
    with suppress(OSError):
        entries = sorted(path for path in root.iterdir() if (path / DECLARATION).is_file())
        yield from entries[:MAX_FOLDERS]


def read_folder(folder: Path, *, bundled: bool = False) -> HookFolder:
    """Read the hook in a folder; raise `HookFolderError` if it cannot be used."""
    declared = _read_declaration(folder)
    metadata = declared.get("metadata")
    namespaces = [metadata.get(name) for name in ("retinue", "openclaw")] if isinstance(metadata, Mapping) else []
    ours: Mapping[str, Any] = next((each for each in namespaces if isinstance(each, Mapping)), {})
    listed = ours.get("events")
    events = tuple(str(event) for event in listed) if isinstance(listed, list) else ()
    if not events:
        raise HookFolderError(f"{folder / DECLARATION} lists no events (metadata.retinue.events).")
    unknown = [event for event in events if not _is_event(event)]
    if unknown:
        raise HookFolderError(f"{folder / DECLARATION}: there is no event '{unknown[0]}'. Events: {', '.join(EVENTS)}.")
    handler = next((folder / name for name in HANDLERS if os.access(folder / name, os.X_OK)), None)
    if handler is None and not bundled:
        raise HookFolderError(f"{folder} has no program: put an executable file `handler` next to {DECLARATION}.")
    try:
        extras = decode(Extras, dict(ours))
    except DecodeError as error:
        raise HookFolderError(f"{folder / DECLARATION}: metadata.retinue cannot be read: {error}") from error
    wanted = extras.requires
    needs = Requirements(extras.os, wanted.bins, wanted.any_bins, wanted.env, wanted.config)
    description = str(declared.get("description") or "")
    return HookFolder(folder.name, description, events, folder, handler, needs, extras.always)


def _read_declaration(folder: Path) -> Mapping[str, Any]:
    try:
        text = (folder / DECLARATION).read_bytes()[:MAX_BYTES].decode("utf-8")
        front, _ = split_front_matter(text)
        return parse_yaml(front) if front is not None else {}
    except (OSError, UnicodeDecodeError, FrontMatterError) as error:
        raise HookFolderError(f"{folder / DECLARATION} cannot be read: {error}") from error


def _is_event(event: str) -> bool:
    known = any(each == event or each.startswith(f"{event}:") for each in EVENTS)
    return known or _ANY_COMMAND.fullmatch(event) is not None


async def run_hook(hook: HookFolder, event: Mapping[str, Any], environment: Mapping[str, str]) -> HookReply:
    """Run a hook for an event with a time limit; raise `ProgramFailed` on failure."""
    assert hook.handler is not None, f"the bundled hook {hook.name} has no program"
    program = ExternalProgram(f"The hook {hook.name}", [str(hook.handler)], hook.folder, environment, SECONDS)
    return read_reply(await run_json_program(program, event))


def read_reply(printed: str) -> HookReply:
    """Parse the JSON object that a hook printed; other output is ignored."""
    try:
        reply = json.loads(printed)
    except (ValueError, RecursionError):
        return HookReply()
    if not isinstance(reply, dict):
        return HookReply()
    messages = [sanitise(text)[:MAX_MESSAGE_CHARS] for text in _texts(reply.get("messages"))]
    return HookReply(tuple(messages[:MAX_MESSAGES]), tuple(_texts(reply.get("bootstrapFiles"))[:MAX_FILES]))


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str) and text.strip()] if isinstance(value, list) else []
