"""The hooks that Retinue brings: each is a folder with a HOOK.md, and a function here instead of a program."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from retinue.config.sections.automation import HookEntry
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, Compacting
from retinue.core.keys import SessionKind
from retinue.core.trust import Trust
from retinue.dispatch.points import COMMAND, SESSION_END, CommandGiven, SessionChange
from retinue.hooks.bus import Registrant
from retinue.runtime.confinement import may_write_notes
from retinue.runtime.hook_folders import inside
from retinue.runtime.notes import spoken
from retinue.runtime.plan import local_time
from retinue.runtime.runtime import Runtime
from retinue.sessions.session import Session
from retinue.storage.files import Root
from retinue.storage.provenance import lines_of
from retinue.workspace.bootstrap import BOOTSTRAP_FILES
from retinue.workspace.points import BOOTSTRAP, BootstrapFiles

log = logging.getLogger(__name__)

MOST_MESSAGE_CHARS = 2_000
MOST_EXTRA_FILES = 20
MOST_LOOKED_AT = 2_000
COMMAND_LOG = "commands.log"
_BY_A_PERSON = frozenset({"new", "reset"})
_PRIVATE = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT})
_WORKSPACE_NAMES = frozenset(row.name for row in BOOTSTRAP_FILES)


def keep_sessions(runtime: Runtime) -> None:
    """`session-memory`: the last messages of a conversation become a note when a person ends it."""
    most = _entry(runtime, "session-memory").messages

    async def ended(event: SessionChange) -> None:
        if event.reason in _BY_A_PERSON and event.session.kind in _PRIVATE:
            _keep_session(runtime, event, most)

    runtime.bus.subscribe(SESSION_END, ended, Registrant("session-memory"))


def _keep_session(runtime: Runtime, event: SessionChange, most: int) -> None:
    parts = runtime.agent(event.session.agent)
    session = parts.store.peek(event.session)
    if session is None or not may_write_notes(parts.room, event.session):
        return
    redact = runtime.foundation.redactor.redact
    said = [(_shorten(redact(text)), trust) for text, trust in spoken(session, parts.store)][-most:]
    if not said:
        return
    now = local_time(parts)
    path = f"memory/{now:%Y-%m-%d-%H%M}.md"
    foreign = [line for text, trust in said if trust is Trust.UNTRUSTED for line in lines_of(text)]
    runtime.memories.writes(parts.room).record(path, foreign, str(event.session))
    parts.room.root.append(path, _spell_note(session, event.reason, (text for text, _ in said)).encode())
    runtime.memories.note_change(parts.room)


def _shorten(text: str) -> str:
    return text if len(text) <= MOST_MESSAGE_CHARS else f"{text[:MOST_MESSAGE_CHARS]} […]"


def _spell_note(session: Session, how: str, said: Iterable[str]) -> str:
    head = f"# Conversation of {session.started_at:%Y-%m-%d %H:%M} UTC\n\nSession {session.key}, ended by /{how}."
    return "\n\n".join((head, "## Last messages", *said)) + "\n\n"


def log_commands(runtime: Runtime) -> None:
    """`command-logger`: every slash command adds a line to a log of its own."""
    folder = runtime.foundation.home.path / "logs"

    async def given(event: CommandGiven) -> None:
        line = {
            "timestamp": runtime.foundation.clock.now().isoformat(),
            "action": event.name,
            "sessionKey": str(event.session),
            "sender": event.sender,
        }
        with Root.open(folder, create=True) as root:
            root.append(COMMAND_LOG, json.dumps(line, ensure_ascii=False).encode() + b"\n", sync=False)

    runtime.bus.subscribe(COMMAND, given, Registrant("command-logger"))


def tell_of_compaction(runtime: Runtime) -> None:
    """`compaction-notifier`: the person reads when a conversation is summed up."""

    async def ahead(event: Compacting) -> Compacting:
        text = f"Summing up the conversation ({event.tokens_before:,} tokens) …"
        return replace(event, messages=(*event.messages, text))

    async def done(event: Compacting) -> Compacting:
        text = f"Summed up: {event.tokens_before:,} tokens became {event.tokens_after or 0:,}."
        return replace(event, messages=(*event.messages, text))

    who = Registrant("compaction-notifier")
    runtime.bus.subscribe(BEFORE_COMPACTION, ahead, who)
    runtime.bus.subscribe(AFTER_COMPACTION, done, who)


def add_files(runtime: Runtime) -> None:
    """`bootstrap-extra-files`: more files of the workspace go into the prompt, where they have a name of its files."""
    entry = _entry(runtime, "bootstrap-extra-files")
    patterns = (*entry.paths, *entry.patterns, *entry.files)

    async def reading(event: BootstrapFiles) -> BootstrapFiles:
        workspace = runtime.agent(event.session.agent).room.root.path
        found = dict.fromkeys(path for pattern in patterns for path in find_files(workspace, pattern))
        return replace(event, extra=(*event.extra, *islice(found, MOST_EXTRA_FILES)))

    runtime.bus.subscribe(BOOTSTRAP, reading, Registrant("bootstrap-extra-files"))


def find_files(workspace: Path, pattern: str) -> Iterator[str]:
    """The files of a workspace that a path or pattern names and that are called like one of its own files."""
    plain = inside(pattern, workspace)
    if plain is None:
        log.warning("bootstrap-extra-files: '%s' leads out of the workspace", pattern)
        return
    for path in sorted(islice(workspace.glob(plain), MOST_LOOKED_AT)):
        if path.name in _WORKSPACE_NAMES and path.parent != workspace:
            yield path.relative_to(workspace).as_posix()


def _entry(runtime: Runtime, name: str) -> HookEntry:
    return runtime.foundation.config.hooks.internal.entries.get(name) or HookEntry()


BUNDLED_HOOKS: Mapping[str, Callable[[Runtime], None]] = {
    "session-memory": keep_sessions,
    "command-logger": log_commands,
    "compaction-notifier": tell_of_compaction,
    "bootstrap-extra-files": add_files,
}
"""What each bundled hook does; `boot-md` is the gateway's own business."""
