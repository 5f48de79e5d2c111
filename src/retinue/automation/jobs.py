"""Jobs that run at set times, and when each is next due: values and pure functions of the time."""

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
"""How long a job rests after its first, second, … failure in a row."""

MOST_RETRIES = 3
"""How often a job that runs only once is tried again."""


class Mode(StrEnum):
    """What becomes of a job's answer."""

    NONE = "none"
    ANNOUNCE = "announce"
    WEBHOOK = "webhook"


class Delivery(Struct, frozen=True):
    """Where a job's answer goes: nowhere, to a chat (the last one where none is named), or to an address."""

    mode: Mode = Mode.ANNOUNCE
    channel: str | None = None
    to: str | None = None
    url: str | None = None


WakeMode = Literal["now", "next-heartbeat"]
"""Whether a job of the main session has a turn of its own or waits for a heartbeat."""

Outcome = Literal["running", "ok", "failed", "skipped", "interrupted"]


class Job(Struct, frozen=True, rename="camel"):
    """Something an agent is asked at set times.

    `target` is `main` (the agent's own conversation), `isolated` (a fresh session for each run) or a session key.
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
    """The slot that ran last, or the moment from which slots count."""
    next_at: datetime | None = None
    failures: int = 0

    def session_of(self, run: RunId) -> SessionKey:
        """The session that a run of this job belongs to."""
        match self.target:
            case "main":
                return SessionKey.main(self.agent)
            case "isolated":
                return SessionKey.parse(f"agent:{self.agent}:cron:{self.id}:run:{run}")
            case _:
                return SessionKey.parse(self.target, default_agent=self.agent)


class JobRun(Struct, frozen=True, rename="camel"):
    """One run of a job: for which slot, why, and what came of it."""

    job: str
    run: RunId
    slot: datetime
    reason: Literal["schedule", "manual", "retry"]
    started_at: datetime
    outcome: Outcome = "running"
    ended_at: datetime | None = None
    summary: str = ""


def plan_next(job: Job, now: datetime) -> Job:
    """The job with the moment at which it is next due; a job that has none left is switched off."""
    if not job.enabled:
        return replace(job, next_at=None)
    soonest = due_slot(job.schedule, job.served, now) or next_slot(job.schedule, max(job.served, now))
    return replace(job, next_at=soonest, enabled=soonest is not None)


def after_run(job: Job, slot: datetime, now: datetime, *, ok: bool) -> Job:
    """The job after a run: further slots as scheduled, or after a failure not before it has rested."""
    served = replace(job, served=max(job.served, slot), failures=0 if ok else job.failures + 1)
    if ok:
        return plan_next(served, now)
    rested = now + BACKOFF[min(served.failures, len(BACKOFF)) - 1]
    if isinstance(job.schedule, At):
        again = served.failures <= MOST_RETRIES
        return replace(served, next_at=rested if again else None, enabled=again)
    return replace(served, next_at=next_slot(job.schedule, rested - timedelta(microseconds=1)))
