"""Accepted webhook requests whose answers are not delivered yet."""

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


class WebhookDelivery(Struct, frozen=True):
    """Where to deliver the answer to a webhook; `timeout_seconds` is the time limit of the turn."""

    agent: AgentId
    session: str
    deliver: bool = True
    channel: str | None = None
    to: str | None = None
    timeout_seconds: int | None = None


class WebhookRun(Struct, frozen=True):
    """A webhook request that an agent is processing."""

    run: RunId
    delivery: WebhookDelivery
    accepted_at: datetime


def encode_delivery(delivery: WebhookDelivery) -> str:
    return dump_json(to_plain(delivery))


def decode_delivery(text: str) -> WebhookDelivery:
    """Return the delivery that `encode_delivery` wrote; raise `ValueError` if it cannot be read."""
    return from_plain(load_json(text), WebhookDelivery)


class WebhookStore:
    """The unfinished webhook requests of a home; a starting gateway resumes them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def keep(self, run: RunId, delivery: WebhookDelivery) -> WebhookRun:
        now = self._clock.now()
        with self._database.change() as base:
            base.execute(_KEEP, (run, encode_delivery(delivery), format_moment(now)))
        return WebhookRun(run, delivery, now)

    def forget(self, run: RunId) -> None:
        with self._database.change() as base:
            base.execute(_FORGET, (run,))

    def unfinished(self) -> tuple[WebhookRun, ...]:
        """Return the accepted and unfinished requests, oldest first."""
        return tuple(
            WebhookRun(RunId(row["run"]), decode_delivery(row["body"]), parse_moment(row["accepted_at"]))
            for row in self._database.read(_ALL)
        )
