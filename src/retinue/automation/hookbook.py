"""Webhooks that were accepted and whose answers are still to be brought somewhere."""

from __future__ import annotations

import json
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.keys import AgentId, RunId
from retinue.storage.database import Database

_KEEP = "INSERT OR IGNORE INTO hook_runs (run, body, accepted_at) VALUES (?, ?, ?)"
_FORGET = "DELETE FROM hook_runs WHERE run = ?"
_ALL = "SELECT run, body, accepted_at FROM hook_runs ORDER BY rowid"


class Errand(Struct, frozen=True):
    """What is to be done with the answer to a webhook; `timeout_seconds` is how long it may take."""

    agent: AgentId
    session: str
    deliver: bool = True
    channel: str | None = None
    to: str | None = None
    timeout_seconds: int | None = None


class HookRun(Struct, frozen=True):
    """A webhook that an agent works on."""

    run: RunId
    errand: Errand
    accepted_at: datetime


class HookBook:
    """The webhooks of a home that are not over; a gateway that starts takes them up."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def keep(self, run: RunId, errand: Errand) -> HookRun:
        now = self._clock.now()
        with self._database.change() as base:
            base.execute(_KEEP, (run, json.dumps(asdict(errand)), format_moment(now)))
        return HookRun(run, errand, now)

    def forget(self, run: RunId) -> None:
        with self._database.change() as base:
            base.execute(_FORGET, (run,))

    def unfinished(self) -> tuple[HookRun, ...]:
        """What was accepted and not seen through, oldest first."""
        return tuple(
            HookRun(RunId(row["run"]), Errand(**json.loads(row["body"])), parse_moment(row["accepted_at"]))
            for row in self._database.read(_ALL)
        )
