"""What an agent can remember: the notes in its workspace and elsewhere, and its past conversations as notes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import RetinueError, StorageError
from retinue.core.keys import SessionKind
from retinue.core.messages import AssistantMessage, ToolResult, UserMessage
from retinue.core.trust import Trust, least
from retinue.memory.documents import Library, Problem, Shelf, workspace_shelf
from retinue.memory.scope import remembers_sessions
from retinue.memory.settings import QmdPath
from retinue.memory.transcripts import TranscriptFacts, export_sessions
from retinue.runtime.records import open_sessions
from retinue.runtime.rooms import AgentRoom
from retinue.security.redaction import Redactor
from retinue.sessions.entries import MessageAdded
from retinue.sessions.session import Session
from retinue.sessions.store import SessionStore
from retinue.storage.files import Root
from retinue.storage.provenance import AgentWrites, lines_of

SESSIONS_PREFIX = "sessions/"
_TALKS = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT, SessionKind.GROUP, SessionKind.CHANNEL})


class Notes(Struct, frozen=True):
    """The notes of one agent; `exports` is where its conversations are written as notes, if they are.

    `writes` learns which of their lines came from outside, and `due` names conversations that are written next time
    however little they have grown.
    """

    room: AgentRoom
    library: Library
    exports: Root | None
    writes: AgentWrites
    due: set[str]

    def export(self) -> tuple[Problem, ...]:
        """Write the conversations that have gone on since."""
        if self.exports is None:
            return ()
        foundation = self.room.foundation
        due = frozenset(self.due)
        problems = export_sessions(
            _Sessions(open_sessions(foundation, self.room.id), foundation.redactor, self.writes),
            self.exports,
            self.room.settings.memory_search.sync.sessions,
            retention_days=foundation.config.memory.qmd.sessions.retention_days,
            now=foundation.clock.now(),
            due=due,
        )
        self.due.difference_update(due)
        return tuple(problems)


def qmd_folder(room: AgentRoom) -> Path:
    """Where an agent's QMD keeps its files, and where its conversations are written."""
    return room.foundation.home.path / "agents" / room.id / "qmd"


@contextmanager
def open_notes(room: AgentRoom, writes: AgentWrites, due: set[str]) -> Iterator[Notes]:
    """An agent's notes; the folders that are not its workspace are let go of at the end of the block."""
    memory, settings = room.foundation.config.memory, room.settings.memory_search
    with_qmd = memory.backend == "qmd"
    with ExitStack() as stack:
        exports = None
        if remembers_sessions(settings) or (with_qmd and memory.qmd.sessions.enabled):
            exports = stack.enter_context(Root.open(_exports_folder(room), create=True))
        shelves = _Shelves(room, stack)
        defaults = "memory" in settings.sources and (memory.qmd.include_default_memory or not with_qmd)
        shelves.add_own(settings.extra_paths, defaults=defaults)
        for entry in memory.qmd.paths if with_qmd else ():
            shelves.add_named(entry)
        if exports is not None:
            shelves.made.append(Shelf(exports, "sessions", SESSIONS_PREFIX, folders=(".",)))
        yield Notes(room, Library(shelves.made, shelves.problems), exports, writes, due)


def _exports_folder(room: AgentRoom) -> Path:
    configured = room.foundation.config.memory.qmd.sessions.export_dir
    return Path(configured).expanduser() / room.id / "sessions" if configured else qmd_folder(room) / "sessions"


class _Shelves:
    """The shelves of an agent, put up one after the other."""

    def __init__(self, room: AgentRoom, stack: ExitStack) -> None:
        self.made: list[Shelf] = []
        self.problems: list[Problem] = []
        self._stack = stack
        self._root = room.root
        self._workspace = room.root.path.absolute()

    def add_own(self, extra_paths: list[str], *, defaults: bool) -> None:
        """The memory files of the workspace, and what `extraPaths` names there and elsewhere."""
        inside: list[str] = []
        outside: list[tuple[str, Path]] = []
        for text in extra_paths:
            path = self._workspace / Path(text).expanduser()
            if path.is_relative_to(self._workspace) and path != self._workspace and ".." not in path.parts:
                inside.append(path.relative_to(self._workspace).as_posix())
            else:
                outside.append((text, path))
        shelf = workspace_shelf(self._root, inside, defaults=defaults)
        if shelf.files or shelf.folders:
            self.made.append(shelf)
        for text, path in outside:
            is_file = path.suffix == ".md"
            folder = path.parent if is_file else path
            prefix = self._free(f"extra/{folder.name or 'root'}")
            files, folders = ((path.name,), ()) if is_file else ((), (".",))
            self._add(text, folder, prefix, files=files, folders=folders)

    def add_named(self, entry: QmdPath) -> None:
        """A folder that `memory.qmd.paths` names, under the name that it has there."""
        from retinue.memory.qmd.collections import clean_name

        folder = self._workspace / Path(entry.path).expanduser()
        prefix = self._free(f"qmd/{clean_name(entry.name or folder.name)}")
        self._add(entry.path, folder, prefix, folders=(".",), pattern=entry.pattern)

    def _add(
        self,
        named: str,
        folder: Path,
        prefix: str,
        *,
        files: tuple[str, ...] = (),
        folders: tuple[str, ...] = (),
        pattern: str | None = None,
    ) -> None:
        try:
            root = self._stack.enter_context(Root.open(folder))
            shelf = Shelf(root, "memory", prefix, files, folders, pattern)
            shelf.fits("")
        except StorageError as error:
            self.problems.append(Problem(named, str(error)))
        except RetinueError as error:
            self.problems.append(Problem(named, f"Its pattern cannot be used: {error}"))
        else:
            self.made.append(shelf)

    def _free(self, wanted: str) -> str:
        """A beginning of paths that no other shelf has."""
        taken = {shelf.prefix for shelf in self.made}
        number, found = 1, wanted
        while f"{found}/" in taken:
            number += 1
            found = f"{wanted}-{number}"
        return f"{found}/"


class _Sessions(Struct, frozen=True):
    """Past conversations between people and the agent; what clocks and jobs started is left out."""

    store: SessionStore
    redactor: Redactor
    writes: AgentWrites

    def list(self) -> list[TranscriptFacts]:
        return [
            TranscriptFacts(session.id, session.size, session.messages, session.updated_at)
            for session in self.store.list()
            if session.key.kind in _TALKS
        ]

    def render(self, session: str) -> str:
        found = next(row for row in self.store.list() if row.id == session)
        said = [(self.redactor.redact(text), trust) for text, trust in spoken(found, self.store)]
        foreign = [line for text, trust in said if trust is Trust.UNTRUSTED for line in lines_of(text)]
        self.writes.record(f"{SESSIONS_PREFIX}{session}.md", foreign, str(found.key))
        return "\n".join([f"# Session of {found.started_at:%Y-%m-%d}", "", *(text for text, _ in said)]) + "\n"


def spoken(session: Session, store: SessionStore) -> Iterator[tuple[str, Trust]]:
    """What was said, and how far it may be believed: an answer after text from outside is as foreign as that text."""
    tainted = Trust.AGENT
    for entry in store.open(session.key).tree.path:
        match entry.body:
            case MessageAdded(message=ToolResult() as message):
                tainted = least([tainted, message.trust])
            case MessageAdded(message=UserMessage() as message):
                tainted = least([tainted, message.trust])
                if message.text.strip():
                    yield f"User: {message.text.strip()}", message.trust
            case MessageAdded(message=AssistantMessage() as message) if message.text.strip():
                yield f"Assistant: {message.text.strip()}", tainted
