"""Past sessions as notes: written as Markdown with who said what, and forgotten after a while."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict

from retinue.core.errors import StorageError
from retinue.memory.documents import Problem
from retinue.memory.settings import SyncSessions
from retinue.storage.files import EntryKind, NotThere, Root

SETTLED = timedelta(minutes=5)
_STATE = "exports.json"
_MAX_STATE_BYTES = 16 * 1024 * 1024


class TranscriptFacts(Struct, frozen=True):
    """How far a session has come."""

    id: str
    size: int
    messages: int
    updated_at: datetime


class TranscriptSource(Protocol):
    """Where past sessions come from. What `render` gives holds no secrets."""

    def list(self) -> Iterable[TranscriptFacts]: ...

    def render(self, session: str) -> str: ...


class _Exported(Struct, frozen=True):
    size: int
    messages: int


def is_due(facts: TranscriptFacts, exported: tuple[int, int] | None, deltas: SyncSessions, now: datetime) -> bool:
    """Whether a session is to be written again: it grew much, or it grew and has been quiet since."""
    if exported is None:
        return True
    grown, said = facts.size - exported[0], facts.messages - exported[1]
    if grown == 0:
        return False
    return grown >= deltas.delta_bytes or said >= deltas.delta_messages or now - facts.updated_at >= SETTLED


def export_sessions(
    source: TranscriptSource,
    folder: Root,
    deltas: SyncSessions,
    *,
    retention_days: int,
    now: datetime,
    due: Set[str] = frozenset(),
) -> Sequence[Problem]:
    """Bring the folder of exported sessions up to date; sessions older than the retention leave it.

    Those that are `due` are written however little they have grown.
    """
    state = _read_state(folder)
    oldest = now - timedelta(days=retention_days) if retention_days else None
    problems: list[Problem] = []
    live: dict[str, _Exported] = {}
    for facts in source.list():
        if oldest is not None and facts.updated_at < oldest:
            continue
        before = state.get(facts.id)
        known = (before.size, before.messages) if before else None
        if before is not None and facts.id not in due and not is_due(facts, known, deltas, now):
            live[facts.id] = before
            continue
        try:
            folder.write(f"{facts.id}.md", source.render(facts.id).encode("utf-8", "replace"))
            live[facts.id] = _Exported(facts.size, facts.messages)
        except StorageError as error:
            problems.append(Problem(f"sessions/{facts.id}.md", str(error)))
    for entry in folder.entries():
        if entry.kind is EntryKind.FILE and entry.name.endswith(".md") and entry.name.removesuffix(".md") not in live:
            folder.remove(entry.name)
    if live != state:
        text = json.dumps({session: asdict(exported) for session, exported in live.items()})
        folder.write(_STATE, text.encode())
    return problems


def _read_state(folder: Root) -> dict[str, _Exported]:
    try:
        found = json.loads(folder.read(_STATE, max_bytes=_MAX_STATE_BYTES).data)
        return {str(session): _Exported(int(row["size"]), int(row["messages"])) for session, row in found.items()}
    except NotThere:
        return {}
    except (StorageError, ValueError, TypeError, KeyError, AttributeError):
        # Derived: without it every session is written once more.
        return {}
