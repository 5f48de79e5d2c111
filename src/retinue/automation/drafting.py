"""Jobs as people and agents write them down, turned into jobs or into a sentence about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from retinue.automation.jobs import Delivery, Job, Mode, WakeMode
from retinue.automation.schedule import Cron, Schedule, find_zone, parse_at, parse_cron, parse_every
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ReasoningEffort
from retinue.security.escaping import literal

LONGEST_NAME = 80
UNNAMED = "job"
"""What a job is called whose name and message have nothing that can be seen."""
LONGEST_MESSAGE = 20_000
NEEDS_MESSAGE = "A job needs a message: what the agent is asked when it is time."


class JobFields(BaseModel):
    """What can be said about a job; what is left out stays as it is, or is as usual."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    name: str | None = None
    message: str | None = Field(default=None, description="what the agent is asked when it is time")
    at: str | None = Field(default=None, description="once: an ISO time, or a time from now such as 20m")
    every: str | None = Field(default=None, description="again and again, such as 2h")
    cron: str | None = Field(default=None, description="five fields, such as 0 9 * * 1-5")
    tz: str | None = Field(default=None, description="time zone of `cron` and `at`")
    session: str | None = Field(default=None, description="isolated (default), main, or a session key")
    deliver: Literal["none", "announce", "webhook"] | None = None
    channel: str | None = None
    to: str | None = None
    url: str | None = None
    model: str | None = None
    thinking: str | None = None
    timeout_seconds: int | None = Field(default=None, gt=0, le=86_400)
    delete_after_run: bool | None = None
    wake_mode: WakeMode | None = Field(default=None, description="next-heartbeat: no turn of its own; main alone")


def read_fields(fields: Mapping[str, Any]) -> JobFields:
    """Fields as a tool or a client wrote them; raises `UsageError` that names what is wrong."""
    try:
        return JobFields.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UsageError(f"The job cannot be read: {problems}.") from error


def draft_job(fields: JobFields, agent: AgentId, now: datetime, zone: str, *, by: str = "owner") -> Job:
    """A new job; raises `UsageError` that says what is missing or wrong."""
    if fields.message is None:
        raise UsageError(NEEDS_MESSAGE)
    schedule = _read_schedule(fields, now, zone)
    if schedule is None:
        raise UsageError("Say when the job runs: once at a time, every so often, or by a cron expression.")
    blank = Job("", _name_for(fields), agent, schedule, "", created_by=by)
    return revise_job(blank, fields, now, zone)


def revise_job(job: Job, fields: JobFields, now: datetime, zone: str) -> Job:
    """The job with what the fields say; raises `UsageError` where that makes no sense."""
    if fields.message is not None and not fields.message.strip():
        raise UsageError(NEEDS_MESSAGE)
    schedule = _read_schedule(fields, now, zone) or _in_zone(job.schedule, fields.tz)
    target = fields.session or job.target
    if target not in ("main", "isolated") and SessionKey.parse(target, default_agent=job.agent).agent != job.agent:
        raise UsageError(f"'{target}' belongs to another agent. A job speaks in sessions of its own agent.")
    if fields.thinking is not None and fields.thinking not in tuple(ReasoningEffort):
        raise UsageError(f"'{fields.thinking}' is none of: {', '.join(ReasoningEffort)}.")
    wake_mode = fields.wake_mode or job.wake_mode
    if wake_mode == "next-heartbeat" and target != "main":
        raise UsageError("Only a job of the session main can wait for the next heartbeat (wakeMode).")
    message = fields.message or job.message
    if len(message) > LONGEST_MESSAGE:
        raise UsageError(f"The message is longer than {LONGEST_MESSAGE:,} characters. Put it in a file and name that.")
    return replace(
        job,
        name=literal(fields.name or "", LONGEST_NAME) or job.name,
        schedule=schedule,
        message=message,
        target=target,
        delivery=_read_delivery(job.delivery, fields),
        model=fields.model or job.model,
        thinking=fields.thinking or job.thinking,
        timeout_seconds=fields.timeout_seconds or job.timeout_seconds,
        delete_after_run=job.delete_after_run if fields.delete_after_run is None else fields.delete_after_run,
        wake_mode=wake_mode,
    )


def _name_for(fields: JobFields) -> str:
    given = (fields.name, *(fields.message or "").strip().splitlines()[:1])
    return next(filter(None, (literal(text or "", LONGEST_NAME) for text in given)), UNNAMED)


def _read_schedule(fields: JobFields, now: datetime, zone: str) -> Schedule | None:
    given = [text for text in (fields.at, fields.every, fields.cron) if text is not None]
    if len(given) > 1:
        raise UsageError("A job runs at a time, every so often, or by a cron expression: give one of the three.")
    where = fields.tz or zone
    find_zone(where)
    if fields.at is not None:
        return parse_at(fields.at, now, where)
    if fields.every is not None:
        return parse_every(fields.every, now)
    if fields.cron is not None:
        return parse_cron(fields.cron, where)
    return None


def _in_zone(schedule: Schedule, zone: str | None) -> Schedule:
    """A schedule that stays, in another time zone where one is given."""
    if zone is None:
        return schedule
    if not isinstance(schedule, Cron):
        raise UsageError("Only a job by a cron expression has a time zone. Give the expression (cron) with it.")
    return replace(schedule, zone=zone)


def _read_delivery(before: Delivery, fields: JobFields) -> Delivery:
    delivery = Delivery(
        Mode(fields.deliver) if fields.deliver else before.mode,
        fields.channel or before.channel,
        fields.to or before.to,
        fields.url or before.url,
    )
    if delivery.mode is Mode.WEBHOOK and not (delivery.url or "").startswith(("http://", "https://")):
        raise UsageError("A job that reports to a webhook needs its address (url), beginning with http:// or https://.")
    return delivery
