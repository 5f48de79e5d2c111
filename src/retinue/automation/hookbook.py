"""Webhooks that were accepted and whose answers are still to be brought somewhere."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
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


def encode_errand(errand: Errand) -> str:
    return dump_json(to_plain(errand))


def decode_errand(text: str) -> Errand:
    """An errand as `encode_errand` wrote it; raises `ValueError` if it cannot be read."""
    return from_plain(load_json(text), Errand)


class HookBook:
    """The webhooks of a home that are not over; a gateway that starts takes them up."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def keep(self, run: RunId, errand: Errand) -> HookRun:
        now = self._clock.now()
        with self._database.change() as base:
            base.execute(_KEEP, (run, encode_errand(errand), format_moment(now)))
        return HookRun(run, errand, now)

    def forget(self, run: RunId) -> None:
        with self._database.change() as base:
            base.execute(_FORGET, (run,))

    def unfinished(self) -> tuple[HookRun, ...]:
        """What was accepted and not seen through, oldest first."""
        return tuple(
            HookRun(RunId(row["run"]), decode_errand(row["body"]), parse_moment(row["accepted_at"]))
            for row in self._database.read(_ALL)
        )
