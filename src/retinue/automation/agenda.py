"""What waits for an agent's next heartbeat: things that need no turn of their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from retinue.core.clock import Clock, format_moment
from retinue.core.keys import AgentId
from retinue.storage.database import Database

KEPT = timedelta(days=30)
"""How long a note is remembered after it was read, so that the same one is not taken again."""

_PUT = 'INSERT OR IGNORE INTO agenda (agent, at, text, "foreign", token) VALUES (?, ?, ?, ?, ?)'
_WAITING = 'SELECT id, text, "foreign" FROM agenda WHERE agent = ? AND read_at IS NULL ORDER BY id'
_READ = "UPDATE agenda SET read_at = ?, text = '' WHERE id = ?"
_FORGET = "DELETE FROM agenda WHERE read_at < ?"


class Note(Struct, frozen=True):
    """Something to look at; `foreign` where it holds text from outside."""

    id: int
    text: str
    foreign: bool


class Agenda:
    """The notes of all agents of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def put(self, agent: AgentId, text: str, *, foreign: bool, token: str | None = None) -> None:
        """Keep a note until the agent's next heartbeat; one with a token that is known is not kept again."""
        now = self._clock.now()
        with self._database.change() as base:
            base.execute(_PUT, (agent, format_moment(now), text, foreign, token))
            base.execute(_FORGET, (format_moment(now - KEPT),))

    def waiting(self, agent: AgentId) -> tuple[Note, ...]:
        """What an agent has not read yet, oldest first."""
        rows = self._database.read(_WAITING, (agent,))
        return tuple(Note(row["id"], row["text"], bool(row["foreign"])) for row in rows)

    def read(self, notes: Sequence[Note]) -> None:
        """Record that notes reached their agent."""
        now = format_moment(self._clock.now())
        with self._database.change() as base:
            base.executemany(_READ, [(now, note.id) for note in notes])
