"""Hook folders: `hooks/<name>/HOOK.md` with a program beside it that is told what happens.

A hook is a process of its own. It gets the event as JSON on its standard input and can change nothing; whatever it
does, prints or breaks stays its own affair.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import anyio

from retinue.core.errors import RetinueError
from retinue.storage.frontmatter import FrontMatterError, parse_yaml, split_front_matter

log = logging.getLogger(__name__)

DECLARATION = "HOOK.md"
HANDLERS = ("handler", "handler.py", "handler.sh")
SECONDS = 10.0
MOST_BYTES = 64 * 1024
MOST_FOLDERS = 100
EVENTS = (
    "command:new",
    "command:reset",
    "session:start",
    "session:end",
    "session:compact:before",
    "session:compact:after",
    "message:received",
    "message:sent",
    "agent:turn-end",
    "gateway:startup",
    "gateway:shutdown",
)
"""What a hook can be told of; `command` alone stands for all that begin with it."""


class HookFolderError(RetinueError):
    """A hook folder cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class HookFolder:
    """A hook that can run."""

    name: str
    description: str
    events: tuple[str, ...]
    handler: Path

    def wants(self, event: str) -> bool:
        return any(event == wanted or event.startswith(f"{wanted}:") for wanted in self.events)


def find_folders(root: Path) -> Iterator[Path]:
    """The folders beneath `root` that declare a hook, in order of their names."""
    with suppress(OSError):
        entries = sorted(path for path in root.iterdir() if (path / DECLARATION).is_file())
        yield from entries[:MOST_FOLDERS]


def read_folder(folder: Path) -> HookFolder:
    """The hook in a folder; raises `HookFolderError` where it cannot be used."""
    try:
        text = (folder / DECLARATION).read_bytes()[:MOST_BYTES].decode("utf-8")
        front, _ = split_front_matter(text)
        data: Mapping[str, Any] = parse_yaml(front) if front is not None else {}
    except (OSError, UnicodeDecodeError, FrontMatterError) as error:
        raise HookFolderError(f"{folder / DECLARATION} cannot be read: {error}") from error
    metadata = data.get("metadata")
    ours = _namespace(metadata) if isinstance(metadata, Mapping) else {}
    events = tuple(str(event) for event in _items(ours.get("events")))
    if not events:
        raise HookFolderError(f"{folder / DECLARATION} names no events (metadata.retinue.events).")
    strange = [
        event for event in events if not any(known == event or known.startswith(f"{event}:") for known in EVENTS)
    ]
    if strange:
        raise HookFolderError(f"{folder / DECLARATION}: there is no event '{strange[0]}'. Events: {', '.join(EVENTS)}.")
    handler = next((folder / name for name in HANDLERS if os.access(folder / name, os.X_OK)), None)
    if handler is None:
        raise HookFolderError(f"{folder} has no program to run: put an executable file `handler` beside {DECLARATION}.")
    return HookFolder(folder.name, str(data.get("description") or ""), events, handler)


async def tell_hook(hook: HookFolder, event: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Run a hook for an event and wait for its end, for a while; a failure is logged and harms nobody."""
    process = await anyio.open_process(
        [str(hook.handler)],
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=hook.handler.parent,
        env=dict(environment),
        start_new_session=True,
    )
    printed = b""
    try:
        with anyio.fail_after(SECONDS):
            async with process:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(anyio.BrokenResourceError, ConnectionError):
                    await process.stdin.send(json.dumps(event, ensure_ascii=False).encode())
                await process.stdin.aclose()
                async for piece in process.stdout:
                    printed = (printed + piece)[-MOST_BYTES:]
    except TimeoutError:
        log.warning("the hook %s took longer than %g s and was ended", hook.name, SECONDS)
        return
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        told = printed.decode("utf-8", "replace").strip()[-500:]
        log.warning("the hook %s ended with code %s: %s", hook.name, process.returncode, told)


def _namespace(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("retinue", "openclaw"):
        found = metadata.get(name)
        if isinstance(found, Mapping):
            return found
    return {}


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()
