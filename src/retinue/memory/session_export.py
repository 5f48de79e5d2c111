"""Exporting past sessions as Markdown notes, which are removed after the retention time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.memory.notes import NoteProblem
from retinue.memory.settings import SyncSessions
from retinue.storage.files import EntryKind, Root

SETTLED = timedelta(minutes=5)
_STATE = "exports.json"
_MAX_STATE_BYTES = 16 * 1024 * 1024


class TranscriptFacts(Struct, frozen=True):
    """The size of a session's transcript."""

    id: str
    size: int
    messages: int
    updated_at: datetime


class TranscriptSource(Protocol):
    """Lists and renders past sessions. The rendered text contains no secrets."""

    def list(self) -> Iterable[TranscriptFacts]: ...

    def render(self, session: str) -> str: ...


class _Exported(Struct, frozen=True):
    size: int
    messages: int


def is_due(facts: TranscriptFacts, exported: tuple[int, int] | None, deltas: SyncSessions, now: datetime) -> bool:
    """Return whether to export a session again: it grew by a lot, or it grew and has been idle since."""
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
) -> Sequence[NoteProblem]:
    """Bring the folder of exported sessions up to date; remove sessions older than the retention time.

    Sessions in `due` are exported however little they grew.
    """
    state = _read_state(folder)
    oldest = now - timedelta(days=retention_days) if retention_days else None
    problems: list[NoteProblem] = []
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
            problems.append(NoteProblem(f"sessions/{facts.id}.md", str(error)))
    for entry in folder.entries():
        if entry.kind is EntryKind.FILE and entry.name.endswith(".md") and entry.name.removesuffix(".md") not in live:
            folder.remove(entry.name)
    if live != state:
        folder.write(_STATE, msgspec.json.encode(live))
    return problems


def _read_state(folder: Root) -> dict[str, _Exported]:
    try:
        return msgspec.json.decode(folder.read(_STATE, max_bytes=_MAX_STATE_BYTES).data, type=dict[str, _Exported])
    except (StorageError, ValueError):
        # The state is derived: without it every session is exported again.
        return {}
