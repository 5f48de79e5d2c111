"""The bundled hooks: each has a folder with a HOOK.md, and a function here instead of a program."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from retinue.automation.heartbeat import is_empty_checklist
from retinue.config.sections.automation import HookEntry
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, Compacting
from retinue.core.envelope import Inbound, Source
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.core.labels import Label
from retinue.dispatch.hook_points import COMMAND, SESSION_END, CommandGiven, SessionChange
from retinue.hooks import Subscriber
from retinue.runtime.agents.confinement import may_write_notes
from retinue.runtime.agents.workspace import path_in_workspace
from retinue.runtime.channels.send import find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.memory.sources import spoken
from retinue.runtime.turns.plan import local_time
from retinue.runtime.turns.sessions import Sessions
from retinue.sessions.session import Session, owned_by
from retinue.storage.files import NotThere, Root
from retinue.storage.labels.written_lines import lines_of
from retinue.workspace.bootstrap import BOOTSTRAP, BOOTSTRAP_FILES, BootstrapFiles

log = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 2_000
MAX_EXTRA_FILES = 20
MAX_LOOKED_AT = 2_000
COMMAND_LOG = "commands.log"
_BY_A_PERSON = frozenset({"new", "reset"})
_PRIVATE = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT})
_WORKSPACE_NAMES = frozenset(row.name for row in BOOTSTRAP_FILES)
MAX_BOOT_SECONDS = 600.0
MAX_BOOT_BYTES = 64 * 1024
BOOT_PROMPT = (
    "The gateway has started. Follow BOOT.md, shown above, and nothing else. "
    "When it is done and there is nothing to report, reply NO_REPLY."
)


def keep_sessions(sessions: Sessions) -> None:
    """`session-memory`: write the last messages of a conversation to a note when a person ends it."""
    limit = _entry(sessions, "session-memory").messages

    async def ended(event: SessionChange) -> None:
        if event.reason in _BY_A_PERSON and event.session.kind in _PRIVATE:
            _keep_session(sessions, event, limit)

    sessions.shared.bus.subscribe(SESSION_END, ended, Subscriber("session-memory"))


def _keep_session(sessions: Sessions, event: SessionChange, limit: int) -> None:
    parts = sessions.agent(event.session.agent)
    session = parts.store.peek(event.session)
    if session is None or not may_write_notes(parts.workspace, event.session, owned_by(session)):
        return
    from retinue.providers.local.demo import DEMO_NOTE

    redact = sessions.home.redactor.redact
    texts = [(_shorten(redact(text)), label) for text, label in spoken(session, parts.store)][-limit:]
    if not texts or any(DEMO_NOTE in text for text, _ in texts):  # what a demo model says is not worth a note
        return
    now = local_time(parts)
    path = f"memory/{now:%Y-%m-%d-%H%M}.md"
    foreign = [line for text, label in texts if label.is_foreign for line in lines_of(text)]
    own = [line for text, label in texts if label.is_owners for line in lines_of(text)]
    note = _format_note(session, event.reason, (text for text, _ in texts))
    writes = sessions.shared.memories.writes(parts.workspace)
    writes.record(path, foreign, str(event.session))
    writes.record(path, own, str(event.session), origin=Label.OWNER)
    writes.record_own(path, lines_of(note), str(event.session))
    parts.workspace.root.append(path, note.encode())
    sessions.shared.memories.record_change(parts.workspace)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]} […]"


def _format_note(session: Session, how: str, texts: Iterable[str]) -> str:
    head = f"# Conversation of {session.started_at:%Y-%m-%d %H:%M} UTC\n\nSession {session.key}, ended by /{how}."
    return "\n\n".join((head, "## Last messages", *texts)) + "\n\n"


def log_commands(sessions: Sessions) -> None:
    """`command-logger`: write every slash command to a log file."""
    folder = sessions.home.paths.path / "logs"

    async def given(event: CommandGiven) -> None:
        line = {
            "timestamp": sessions.home.clock.now().isoformat(),
            "action": event.name,
            "sessionKey": str(event.session),
            "sender": event.sender,
        }
        with Root.open(folder, create=True) as root:
            root.append(COMMAND_LOG, json.dumps(line, ensure_ascii=False).encode() + b"\n", sync=False)

    sessions.shared.bus.subscribe(COMMAND, given, Subscriber("command-logger"))


def notify_compaction(sessions: Sessions) -> None:
    """`compaction-notifier`: notify the person when a conversation is compacted."""

    async def ahead(event: Compacting) -> Compacting:
        text = f"Compacting the conversation ({event.tokens_before:,} tokens) …"
        return replace(event, messages=(*event.messages, text))

    async def done(event: Compacting) -> Compacting:
        text = f"Compacted: {event.tokens_before:,} tokens became {event.tokens_after or 0:,}."
        return replace(event, messages=(*event.messages, text))

    who = Subscriber("compaction-notifier")
    sessions.shared.bus.subscribe(BEFORE_COMPACTION, ahead, who)
    sessions.shared.bus.subscribe(AFTER_COMPACTION, done, who)


def add_files(sessions: Sessions) -> None:
    """`bootstrap-extra-files`: add files of the workspace with the name of a prompt file to the prompt."""
    entry = _entry(sessions, "bootstrap-extra-files")
    patterns = (*entry.paths, *entry.patterns, *entry.files)

    async def reading(event: BootstrapFiles) -> BootstrapFiles:
        workspace = sessions.agent(event.session.agent).workspace.root.path
        found = dict.fromkeys(path for pattern in patterns for path in find_files(workspace, pattern))
        return replace(event, extra=(*event.extra, *islice(found, MAX_EXTRA_FILES)))

    sessions.shared.bus.subscribe(
        BOOTSTRAP, reading, Subscriber("bootstrap-extra-files", permissions=frozenset({"prompt"}))
    )


def find_files(workspace: Path, pattern: str) -> Iterator[str]:
    """Return the files of a workspace that match a path or pattern and have the name of a prompt file."""
    plain = path_in_workspace(pattern, workspace)
    if plain is None:
        log.warning("bootstrap-extra-files: '%s' is outside the workspace", pattern)
        return
    for path in sorted(islice(workspace.glob(plain), MAX_LOOKED_AT)):
        if path.name in _WORKSPACE_NAMES and path.parent != workspace:
            yield path.relative_to(workspace).as_posix()


def _entry(sessions: Sessions, name: str) -> HookEntry:
    return sessions.home.config.hooks.internal.entries.get(name) or HookEntry()


BUNDLED_HOOKS: Mapping[str, Callable[[Sessions], None]] = {
    "session-memory": keep_sessions,
    "command-logger": log_commands,
    "compaction-notifier": notify_compaction,
    "bootstrap-extra-files": add_files,
}
"""The function of each bundled hook; `boot-md` is implemented by the gateway."""


async def boot_agents(sessions: Sessions, dispatcher: Dispatcher) -> None:
    """Run BOOT.md of every agent that has one; a failure is logged and does not affect the others."""
    for agent in sessions.home.config.agents.ids:
        try:
            if not is_empty_checklist(_instructions(sessions, agent)):
                await _boot(sessions, dispatcher, agent)
        except RetinueError as error:
            log.warning("BOOT.md of %s failed: %s", agent, error)


async def _boot(sessions: Sessions, dispatcher: Dispatcher, agent: AgentId) -> None:
    session = SessionKey.parse(f"agent:{agent}:boot")
    store = sessions.agent(agent).store
    if store.find(session) is not None:
        store.reset(session)
    inbound = Inbound(BOOT_PROMPT, session, channel="boot", source=Source.BOOT)
    accepted = await dispatcher.submit(inbound)
    answer = await dispatcher.wait(accepted.run, MAX_BOOT_SECONDS)
    if answer is None:
        dispatcher.stop(session)
        log.warning("BOOT.md of %s took longer than %g s and was stopped", agent, MAX_BOOT_SECONDS)
        return
    sessions.services.inbox.delivered(accepted.run)
    if answer.error:
        log.warning("BOOT.md of %s failed: %s", agent, answer.error)
    elif not answer.silent and answer.text.strip():
        notify(sessions, find_chat(sessions, agent), answer, "[Start of the gateway]", Source.BOOT)


def _instructions(sessions: Sessions, agent: AgentId) -> str:
    """Return the text of BOOT.md; empty if there is none or the workspace is not trusted."""
    workspace = sessions.agent(agent).workspace
    try:
        return (
            ""
            if not workspace.trusted
            else workspace.root.read("BOOT.md", max_bytes=MAX_BOOT_BYTES).data.decode("utf-8", "replace")
        )
    except NotThere:
        return ""
