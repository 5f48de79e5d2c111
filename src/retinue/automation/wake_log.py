"""The log of wakes: the reason of each, and the outcome of heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from retinue.automation.heartbeat import REPEATS_WITHIN, DeliveredText, SkipReason, WakeReason
from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.keys import AgentId
from retinue.storage.database import Database

KEPT = timedelta(days=30)
WOKEN = "woken"
"""The outcome of a wake that was not a heartbeat: the agent got a separate turn for it."""

_INSERT = """
INSERT INTO heartbeats (agent, at, wake, outcome, detail, digest, tokens) VALUES (?, ?, ?, ?, ?, ?, ?)
"""


class WakeRecord(Struct, frozen=True):
    """One wake of an agent. `outcome` is skipped, quiet, repeated, delivered, failed or woken."""

    agent: AgentId
    at: datetime
    wake: WakeReason
    outcome: str
    detail: str = ""
    digest: str = ""
    tokens: int = 0
    skip: SkipReason | None = None
    """Why it was skipped; not stored."""


class WakeLog:
    """The wakes of all agents of a home in the last 30 days."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def record(self, entry: WakeRecord) -> None:
        values = (
            entry.agent,
            format_moment(entry.at),
            entry.wake,
            entry.outcome,
            entry.detail,
            entry.digest,
            entry.tokens,
        )
        with self._database.change() as base:
            base.execute(_INSERT, values)
            base.execute("DELETE FROM heartbeats WHERE at < ?", (format_moment(self._clock.now() - KEPT),))

    def last(self, agent: AgentId) -> WakeRecord | None:
        """Return the latest heartbeat of an agent."""
        found = self._read("WHERE agent = ? AND outcome <> ? ORDER BY id DESC LIMIT 1", agent, WOKEN)
        return found[0] if found else None

    def log(self, agent: AgentId | None, limit: int) -> Sequence[WakeRecord]:
        """Return the latest wakes, newest first."""
        if agent is None:
            return self._read("ORDER BY id DESC LIMIT ?", limit)
        return self._read("WHERE agent = ? ORDER BY id DESC LIMIT ?", agent, limit)

    def delivered_texts(self, agent: AgentId) -> Sequence[DeliveredText]:
        """Return the recently delivered texts."""
        since = format_moment(self._clock.now() - REPEATS_WITHIN)
        entries = self._read("WHERE agent = ? AND outcome = 'delivered' AND at > ?", agent, since)
        return [DeliveredText(entry.digest, entry.at) for entry in entries]

    def _read(self, rest: str, *values: str | int) -> list[WakeRecord]:
        rows = self._database.read(f"SELECT * FROM heartbeats {rest}", values)  # noqa: S608 - the text is ours
        return [
            WakeRecord(
                AgentId(row["agent"]),
                parse_moment(row["at"]),
                WakeReason(row["wake"]),
                row["outcome"],
                row["detail"],
                row["digest"],
                row["tokens"],
            )
            for row in rows
        ]


def describe_wake(entry: WakeRecord) -> dict[str, Any]:
    """Return a wake as JSON data."""
    return {
        "agent": entry.agent,
        "at": entry.at.isoformat(),
        "wake": entry.wake.value,
        "outcome": entry.outcome,
        "detail": entry.detail,
        "tokens": entry.tokens,
    }
