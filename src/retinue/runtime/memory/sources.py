"""The sources of an agent's memory: notes in its workspace and elsewhere, exported conversations, and their origin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import RetinueError, StorageError
from retinue.core.keys import SessionKind
from retinue.core.labels import Label, mix
from retinue.core.messages import AssistantMessage, ToolResult, UserMessage
from retinue.core.people import PEOPLE_FOLDER, Person
from retinue.memory.notes import (
    WORKSPACE_FILES,
    WORKSPACE_FOLDER,
    Library,
    NoteFolder,
    NoteProblem,
    Provenance,
    workspace_notes,
)
from retinue.memory.search.rules import remembers_sessions
from retinue.memory.session_export import TranscriptFacts, export_sessions
from retinue.memory.settings import QmdPath
from retinue.runtime.agents.workspace import AgentWorkspace, open_sessions
from retinue.runtime.home import agents_in_workspace
from retinue.runtime.memory.backend_choice import memory_backend
from retinue.security.redaction import Redactor
from retinue.sessions.entries import MessageAdded
from retinue.sessions.protocol import StoredSessions
from retinue.sessions.session import Session, recorded_person
from retinue.storage.files import Root
from retinue.storage.labels.written_lines import EXPORTS, lines_of
from retinue.storage.provenance import AgentWrites

_TALKS = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT, SessionKind.GROUP, SessionKind.CHANNEL})


class Notes(Struct, frozen=True):
    """The notes of one agent; `exports` is the folder of exported conversations, if they are exported.

    `writes` records which of their lines are untrusted, and `due` names conversations that are exported next time even
    if they have hardly grown.
    """

    workspace: AgentWorkspace
    library: Library
    exports: Root | None
    writes: AgentWrites
    due: set[str]
    person: Person | None = None
    """The person other than the owner whose notes they are."""

    def export(self) -> tuple[NoteProblem, ...]:
        """Export the conversations that have continued since the last export."""
        if self.exports is None:
            return ()
        home = self.workspace.home
        due = frozenset(self.due)
        problems = export_sessions(
            _Sessions(open_sessions(home, self.workspace.id), home.redactor, self.writes, self.person),
            self.exports,
            self.workspace.settings.memory_search.sync.sessions,
            retention_days=home.config.memory.qmd.sessions.retention_days,
            now=home.clock.now(),
            due=due,
        )
        self.due.difference_update(due)
        return tuple(problems)


def qmd_folder(workspace: AgentWorkspace) -> Path:
    """Return the folder of an agent's QMD files and exported conversations."""
    return workspace.home.paths.path / "agents" / workspace.id / "qmd"


@contextmanager
def open_notes(workspace: AgentWorkspace, writes: AgentWrites, due: set[str]) -> Iterator[Notes]:
    """Open an agent's notes; folders outside its workspace are closed at the end of the block."""
    memory, settings = workspace.home.config.memory, workspace.settings.memory_search
    with_qmd = memory_backend(workspace.home) == "qmd"
    with ExitStack() as stack:
        exports = None
        if remembers_sessions(settings) or (with_qmd and memory.qmd.sessions.enabled):
            exports = stack.enter_context(Root.open(_exports_folder(workspace), create=True))
        note_folders = _NoteFolders(workspace, stack)
        defaults = "memory" in settings.sources and (memory.qmd.include_default_memory or not with_qmd)
        note_folders.add_own(settings.extra_paths, defaults=defaults)
        for entry in memory.qmd.paths if with_qmd else ():
            note_folders.add_named(entry)
        if exports is not None:
            note_folders.made.append(NoteFolder(exports, "sessions", EXPORTS, folders=(".",)))
        yield Notes(workspace, Library(note_folders.made, note_folders.problems), exports, writes, due)


@contextmanager
def open_notes_of(person: Person, workspace: AgentWorkspace, writes: AgentWrites) -> Iterator[Notes]:
    """Open the notes of a person other than the owner: those in their folder, and their exported conversations."""
    with ExitStack() as stack:
        exports = None
        found = []
        if _is_folder(workspace.root, person.folder):
            root = stack.enter_context(workspace.root.enter(person.folder))
            found.append(NoteFolder(root, "memory", f"{person.folder}/", WORKSPACE_FILES, (WORKSPACE_FOLDER,)))
        if remembers_sessions(workspace.settings.memory_search):
            exports = stack.enter_context(Root.open(qmd_folder(workspace) / person.folder, create=True))
            found.append(NoteFolder(exports, "sessions", EXPORTS, folders=(".",)))
        yield Notes(workspace, Library(found), exports, writes, set(), person)


def _is_folder(root: Root, relative: str) -> bool:
    try:
        root.entries(relative)
    except StorageError:
        return False
    return True


def _exports_folder(workspace: AgentWorkspace) -> Path:
    configured = workspace.home.config.memory.qmd.sessions.export_dir
    return (
        Path(configured).expanduser() / workspace.id / "sessions" if configured else qmd_folder(workspace) / "sessions"
    )


class _NoteFolders:
    """Collects the folders of an agent's notes."""

    def __init__(self, workspace: AgentWorkspace, stack: ExitStack) -> None:
        self.made: list[NoteFolder] = []
        self.problems: list[NoteProblem] = []
        self._stack = stack
        self._root = workspace.root
        self._workspace = workspace.root.path.absolute()

    def add_own(self, extra_paths: list[str], *, defaults: bool) -> None:
        """Add the memory files of the workspace, and the folders of `extraPaths`."""
        inside: list[str] = []
        outside: list[tuple[str, Path]] = []
        for text in extra_paths:
            path = self._workspace / Path(text).expanduser()
            if path.is_relative_to(self._workspace) and path != self._workspace and ".." not in path.parts:
                inside.append(path.relative_to(self._workspace).as_posix())
            else:
                outside.append((text, path))
        if defaults:
            inside.append(f"{PEOPLE_FOLDER}/*/{WORKSPACE_FOLDER}")
        note_folder = workspace_notes(self._root, inside, defaults=defaults)
        if note_folder.files or note_folder.folders:
            self.made.append(note_folder)
        for text, path in outside:
            is_file = path.suffix == ".md"
            folder = path.parent if is_file else path
            prefix = self._free(f"extra/{folder.name or 'root'}")
            files, folders = ((path.name,), ()) if is_file else ((), (".",))
            self._add(text, folder, prefix, files=files, folders=folders)

    def add_named(self, entry: QmdPath) -> None:
        """Add a folder of `memory.qmd.paths` under its configured name."""
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
            note_folder = NoteFolder(root, "memory", prefix, files, folders, pattern)
            note_folder.fits("")
        except StorageError as error:
            self.problems.append(NoteProblem(named, str(error)))
        except RetinueError as error:
            self.problems.append(NoteProblem(named, f"Its pattern cannot be used: {error}"))
        else:
            self.made.append(note_folder)

    def _free(self, wanted: str) -> str:
        """Return a path prefix that no other folder uses."""
        taken = {note_folder.prefix for note_folder in self.made}
        number, found = 1, wanted
        while f"{found}/" in taken:
            number += 1
            found = f"{wanted}-{number}"
        return f"{found}/"


class _Sessions(Struct, frozen=True):
    """Past conversations between people and the agent, without those of schedules and jobs.

    With a `person`, only theirs.
    """

    store: StoredSessions
    redactor: Redactor
    writes: AgentWrites
    person: Person | None = None

    def list(self) -> list[TranscriptFacts]:
        return [
            TranscriptFacts(session.id, session.size, session.messages, session.updated_at)
            for session in self.store.list()
            if session.key.kind in _TALKS and self.person in (None, recorded_person(session))
        ]

    def render(self, session: str) -> str:
        found = next(row for row in self.store.list() if row.id == session)
        texts = [(self.redactor.redact(text), label) for text, label in spoken(found, self.store)]
        foreign: defaultdict[Label, list[str]] = defaultdict(list)
        for text, label in texts:
            if label.is_foreign:
                foreign[Label(label.origin)] += lines_of(text)
        heading = f"# Session of {found.started_at:%Y-%m-%d}"
        own = [heading, *(line for text, label in texts if label.is_owners for line in lines_of(text))]
        if self.person is not None:
            theirs = [text for text, label in texts if label == Label.of_person(self.person)]
            return "\n".join([heading, "", *theirs]) + "\n"
        path = f"{EXPORTS}{session}.md"
        self.writes.record(path, own, str(found.key), origin=Label.OWNER)
        for label, lines in foreign.items():
            self.writes.record(path, lines, str(found.key), origin=label)
        return "\n".join([heading, "", *(text for text, _ in texts)]) + "\n"


def spoken(session: Session, store: StoredSessions) -> Iterator[tuple[str, Label]]:
    """Return the messages and their label: an answer after untrusted text is as untrusted as that text."""
    tainted = Label.AGENT
    for entry in store.open(session.key).tree.path:
        match entry.body:
            case MessageAdded(message=ToolResult() as message):
                tainted = mix([tainted, message.label])
            case MessageAdded(message=UserMessage() as message):
                tainted = mix([tainted, message.label])
                if message.text.strip():
                    yield f"User: {message.text.strip()}", message.label
            case MessageAdded(message=AssistantMessage() as message) if message.text.strip():
                yield f"Assistant: {message.text.strip()}", tainted


@contextmanager
def open_writes(workspace: AgentWorkspace) -> Iterator[AgentWrites]:
    """Open the record of what was written into an agent's notes, for callers without an open database."""
    home = workspace.home
    database = home.open_state(newer="refuse")
    try:
        agent, folder = agents_in_workspace(home.paths, home.config, workspace.id)[0], workspace.root.path.resolve()
        yield AgentWrites(database, home.clock, agent, folder, owned=workspace.trusted)
    finally:
        database.close()


def provenance_of(
    library: Library, workspace: AgentWorkspace, writes: AgentWrites, person: Person | None = None
) -> Provenance:
    """Return the function that finds the origin of lines by memory path; for other folders these are not file paths."""

    def origin(path: str, lines: Sequence[str]) -> Label:
        note_folder, relative = library.locate(path)
        if person is not None:
            return Label.of_person(person) if note_folder.source == "sessions" else writes.origin(path, lines)
        is_own = note_folder.root is workspace.root or note_folder.source == "sessions"
        return writes.origin(path if is_own else str(note_folder.root.path / relative), lines)

    return origin
