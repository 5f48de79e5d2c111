"""The log of wakes: why each came, and of heartbeats what they did and what they said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from retinue.automation.heartbeat import REPEATS_WITHIN, Said, Skip, Wake
from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.keys import AgentId
from retinue.storage.database import Database

KEPT = timedelta(days=30)
WOKEN = "woken"
"""The outcome of a wake that was no heartbeat: the agent got a turn of its own for it."""

_INSERT = """
INSERT INTO heartbeats (agent, at, wake, outcome, detail, digest, tokens) VALUES (?, ?, ?, ?, ?, ?, ?)
"""


class Beat(Struct, frozen=True):
    """One wake of an agent: skipped, quiet, repeated, delivered, failed or woken; `detail` says more."""

    agent: AgentId
    at: datetime
    wake: Wake
    outcome: str
    detail: str = ""
    digest: str = ""
    tokens: int = 0
    skip: Skip | None = None
    """Why it was skipped; not stored."""


class BeatBook:
    """All wakes of a home that are not long past."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def record(self, beat: Beat) -> None:
        values = (beat.agent, format_moment(beat.at), beat.wake, beat.outcome, beat.detail, beat.digest, beat.tokens)
        with self._database.change() as base:
            base.execute(_INSERT, values)
            base.execute("DELETE FROM heartbeats WHERE at < ?", (format_moment(self._clock.now() - KEPT),))

    def last(self, agent: AgentId) -> Beat | None:
        """The latest heartbeat of an agent."""
        found = self._read("WHERE agent = ? AND outcome <> ? ORDER BY id DESC LIMIT 1", agent, WOKEN)
        return found[0] if found else None

    def log(self, agent: AgentId | None, most: int) -> Sequence[Beat]:
        """The latest wakes, newest first."""
        if agent is None:
            return self._read("ORDER BY id DESC LIMIT ?", most)
        return self._read("WHERE agent = ? ORDER BY id DESC LIMIT ?", agent, most)

    def said(self, agent: AgentId) -> Sequence[Said]:
        """What was delivered lately."""
        since = format_moment(self._clock.now() - REPEATS_WITHIN)
        beats = self._read("WHERE agent = ? AND outcome = 'delivered' AND at > ?", agent, since)
        return [Said(beat.digest, beat.at) for beat in beats]

    def _read(self, rest: str, *values: str | int) -> list[Beat]:
        rows = self._database.read(f"SELECT * FROM heartbeats {rest}", values)  # noqa: S608 - the text is ours
        return [
            Beat(
                AgentId(row["agent"]),
                parse_moment(row["at"]),
                Wake(row["wake"]),
                row["outcome"],
                row["detail"],
                row["digest"],
                row["tokens"],
            )
            for row in rows
        ]


def describe_beat(beat: Beat) -> dict[str, Any]:
    """A heartbeat as plain data."""
    return {
        "agent": beat.agent,
        "at": beat.at.isoformat(),
        "wake": beat.wake.value,
        "outcome": beat.outcome,
        "detail": beat.detail,
        "tokens": beat.tokens,
    }
