"""Notes that wait for an agent's next heartbeat, because they need no turn of their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from retinue.core.clock import Clock, format_moment
from retinue.core.keys import AgentId
from retinue.storage.database import Database

KEPT = timedelta(days=30)
"""How long a note is stored after it was read, so that the same token is not accepted again."""

_PUT = 'INSERT OR IGNORE INTO agenda (agent, at, text, "foreign", token) VALUES (?, ?, ?, ?, ?)'
_WAITING = 'SELECT id, text, "foreign" FROM agenda WHERE agent = ? AND read_at IS NULL ORDER BY id'
_READ = "UPDATE agenda SET read_at = ?, text = '' WHERE id = ?"
_FORGET = "DELETE FROM agenda WHERE read_at < ?"


class PendingNote(Struct, frozen=True):
    """A note for the next heartbeat; `foreign` if it contains untrusted text."""

    id: int
    text: str
    foreign: bool


class PendingNoteStore:
    """The pending notes of all agents of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def put(self, agent: AgentId, text: str, *, foreign: bool, token: str | None = None) -> None:
        """Store a note for the agent's next heartbeat; a note with a known token is ignored."""
        now = self._clock.now()
        with self._database.change() as base:
            base.execute(_PUT, (agent, format_moment(now), text, foreign, token))
            base.execute(_FORGET, (format_moment(now - KEPT),))

    def waiting(self, agent: AgentId) -> tuple[PendingNote, ...]:
        """Return the unread notes of an agent, oldest first."""
        rows = self._database.read(_WAITING, (agent,))
        return tuple(PendingNote(row["id"], row["text"], bool(row["foreign"])) for row in rows)

    def read(self, notes: Sequence[PendingNote]) -> None:
        """Mark notes as read."""
        now = format_moment(self._clock.now())
        with self._database.change() as base:
            base.executemany(_READ, [(now, note.id) for note in notes])
