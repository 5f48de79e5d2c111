"""Scheduled jobs and when they are due next: values and pure functions of the time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.automation.schedule import At, Schedule, due_slot, next_slot
from retinue.core.clock import EPOCH
from retinue.core.keys import AgentId, RunId, SessionKey

BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (30, 60, 300, 900, 3_600))
"""The delay after the first, second, … consecutive failure of a job."""

MAX_RETRIES = 3
"""How often a job that runs once is retried."""


class DeliveryMode(StrEnum):
    """How a job's answer is delivered."""

    NONE = "none"
    ANNOUNCE = "announce"
    WEBHOOK = "webhook"


class Delivery(Struct, frozen=True):
    """Where a job's answer is delivered: nowhere, to a chat (the last used if none is named), or to a URL."""

    mode: DeliveryMode = DeliveryMode.ANNOUNCE
    channel: str | None = None
    to: str | None = None
    url: str | None = None


WakeMode = Literal["now", "next-heartbeat"]
"""Whether a job of the main session gets its own turn or waits for the next heartbeat."""

Outcome = Literal["running", "ok", "failed", "skipped", "interrupted"]


class Job(Struct, frozen=True, rename="camel"):
    """A message that an agent gets at scheduled times.

    `target` is `main` (the agent's main session), `isolated` (a new session for each run) or a session key.
    """

    id: str
    name: str
    agent: AgentId = field(name="agentId")
    schedule: Schedule
    message: str
    target: str = field(default="isolated", name="sessionTarget")
    delivery: Delivery = field(default_factory=Delivery)
    model: str | None = None
    thinking: str | None = None
    timeout_seconds: int | None = None
    enabled: bool = True
    delete_after_run: bool = False
    wake_mode: WakeMode = "now"
    created_by: str = "owner"
    created_at: datetime = EPOCH
    served: datetime = field(default=EPOCH, name="servedAt")
    """The slot that ran last, or the time from which slots count."""
    next_at: datetime | None = None
    failures: int = 0

    def session_of(self, run: RunId) -> SessionKey:
        """Return the session of a run of this job."""
        match self.target:
            case "main":
                return SessionKey.main(self.agent)
            case "isolated":
                return SessionKey.parse(f"agent:{self.agent}:cron:{self.id}:run:{run}")
            case _:
                return SessionKey.parse(self.target, default_agent=self.agent)


class JobRun(Struct, frozen=True, rename="camel"):
    """One run of a job: its slot, reason and outcome."""

    job: str
    run: RunId
    slot: datetime
    reason: Literal["schedule", "manual", "retry"]
    started_at: datetime
    outcome: Outcome = "running"
    ended_at: datetime | None = None
    summary: str = ""


def plan_next(job: Job, now: datetime) -> Job:
    """Return the job with its next due time; a job without one is disabled."""
    if not job.enabled:
        return replace(job, next_at=None)
    soonest = due_slot(job.schedule, job.served, now) or next_slot(job.schedule, max(job.served, now))
    return replace(job, next_at=soonest, enabled=soonest is not None)


def after_run(job: Job, slot: datetime, now: datetime, *, ok: bool) -> Job:
    """Return the job after a run: next slot as scheduled, or after a failure not before its delay."""
    served = replace(job, served=max(job.served, slot), failures=0 if ok else job.failures + 1)
    if ok:
        return plan_next(served, now)
    rested = now + BACKOFF[min(served.failures, len(BACKOFF)) - 1]
    if isinstance(job.schedule, At):
        again = served.failures <= MAX_RETRIES
        return replace(served, next_at=rested if again else None, enabled=again)
    return replace(served, next_at=next_slot(job.schedule, rested - timedelta(microseconds=1)))
