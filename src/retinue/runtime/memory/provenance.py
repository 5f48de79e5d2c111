"""The provenance of an agent's notes, for its memory, tools and turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retinue.core.errors import StorageError
from retinue.core.trust import Trust, least
from retinue.runtime.agents.agent import AgentWorkspace
from retinue.storage.database import DATABASE_NAME, Database
from retinue.storage.provenance import AgentWrites, lines_of

if TYPE_CHECKING:
    from retinue.memory.notes import Library, Provenance

_MOST_READ_BYTES = 16 * 1024 * 1024


@contextmanager
def open_writes(workspace: AgentWorkspace) -> Iterator[AgentWrites]:
    """Open the record of what was written into an agent's notes, for callers without an open database."""
    home = workspace.home
    database = Database(home.paths.path / DATABASE_NAME, durable=home.durable)
    try:
        yield AgentWrites(database, home.clock, workspace.id)
    finally:
        database.close()


def provenance_of(library: Library, workspace: AgentWorkspace, writes: AgentWrites) -> Provenance:
    """Return the function that finds the origin of lines by memory path; for other folders these are not file paths."""

    def origin(path: str, lines: Sequence[str]) -> Trust:
        note_folder, relative = library.locate(path)
        is_own = note_folder.root is workspace.root or note_folder.source == "sessions"
        return writes.origin(path if is_own else str(note_folder.root.path / relative), lines)

    return origin


def trust_of_files(workspace: AgentWorkspace, writes: AgentWrites, names: Sequence[str]) -> Trust:
    """Return the trust of workspace files in a prompt, each judged by all its lines."""
    written = writes.paths()
    return least([Trust.AGENT, *(_trust_of_file(workspace, writes, name) for name in names if name in written)])


def _trust_of_file(workspace: AgentWorkspace, writes: AgentWrites, name: str) -> Trust:
    try:
        data = workspace.root.read(name, max_bytes=_MOST_READ_BYTES).data
    except StorageError:
        return Trust.UNTRUSTED
    return writes.origin(name, lines_of(data.decode("utf-8-sig", "replace")))
