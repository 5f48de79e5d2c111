"""The fields with which people and agents create and change jobs, and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from retinue.automation.jobs import Delivery, DeliveryMode, Job, WakeMode
from retinue.automation.schedule import Cron, Schedule, find_zone, parse_at, parse_cron, parse_every
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ReasoningEffort
from retinue.security.untrusted_text import literal
from retinue.structs.declare import Declared, UnknownKeys, declare
from retinue.structs.decode import DecodeError, decode

MAX_NAME_CHARS = 80
UNNAMED = "job"
"""The name of a job whose name and message have no visible characters."""
MAX_MESSAGE_CHARS = 20_000
NEEDS_MESSAGE = "A job needs a message for the agent. Give one: `--message TEXT` on the command line."


class JobFields(Declared, rename="camel"):
    """The fields of a job; omitted fields stay unchanged or get their default."""

    unknown_keys: ClassVar[UnknownKeys] = "forbid"
    accepts_attribute_names: ClassVar[bool] = True

    name: str | None = None
    message: str | None = None
    """the message that the agent gets when the job runs"""
    at: str | None = None
    """once: an ISO time, or a time from now such as 20m"""
    every: str | None = None
    """repeatedly, such as 2h"""
    cron: str | None = None
    """five fields, such as 0 9 * * 1-5"""
    tz: str | None = None
    """time zone of `cron` and `at`"""
    session: str | None = None
    """isolated (default), main, or a session key"""
    deliver: Literal["none", "announce", "webhook"] | None = None
    channel: str | None = None
    to: str | None = None
    url: str | None = None
    model: str | None = None
    thinking: str | None = None
    timeout_seconds: int | None = declare(None, gt=0, le=86_400)
    light_context: bool | None = None
    """a prompt without workspace files and skills; only for isolated"""
    delete_after_run: bool | None = None
    wake_mode: WakeMode | None = None
    """next-heartbeat: no separate turn; only for main"""


def read_job_fields(fields: Mapping[str, Any]) -> JobFields:
    """Validate the fields of a tool call or request; raise `UsageError` that names the problems."""
    try:
        return decode(JobFields, fields)
    except DecodeError as error:
        raise UsageError(f"The job cannot be read: {error}.") from error


def draft_job(fields: JobFields, agent: AgentId, now: datetime, zone: str, *, by: str = "owner") -> Job:
    """Return a new job; raise `UsageError` if a field is missing or invalid."""
    if fields.message is None:
        raise UsageError(NEEDS_MESSAGE)
    schedule = _read_schedule(fields, now, zone)
    if schedule is None:
        raise UsageError("A job needs a schedule: give at, every or cron.")
    given = (fields.name, *fields.message.strip().splitlines()[:1])
    name = next(filter(None, (literal(text or "", MAX_NAME_CHARS) for text in given)), UNNAMED)
    blank = Job("", name, agent, schedule, "", created_by=by)
    return revise_job(blank, fields, now, zone)


def revise_job(job: Job, fields: JobFields, now: datetime, zone: str) -> Job:
    """Return the job with the given fields; raise `UsageError` if they are invalid."""
    if fields.message is not None and not fields.message.strip():
        raise UsageError(NEEDS_MESSAGE)
    schedule = _read_schedule(fields, now, zone) or _in_zone(job.schedule, fields.tz)
    target = fields.session or job.target
    if target not in ("main", "isolated") and SessionKey.parse(target, default_agent=job.agent).agent != job.agent:
        raise UsageError(f"'{target}' belongs to another agent. A job can only use sessions of its own agent.")
    if fields.thinking is not None and fields.thinking not in tuple(ReasoningEffort):
        raise UsageError(f"'{fields.thinking}' is not one of: {', '.join(ReasoningEffort)}.")
    wake_mode = fields.wake_mode or job.wake_mode
    if wake_mode == "next-heartbeat" and target != "main":
        raise UsageError("wakeMode next-heartbeat requires the session main.")
    light_context = job.light_context if fields.light_context is None else fields.light_context
    if light_context and target != "isolated":
        raise UsageError("lightContext requires the session isolated: other sessions keep one prompt for all turns.")
    message = fields.message or job.message
    if len(message) > MAX_MESSAGE_CHARS:
        raise UsageError(
            f"The message is longer than {MAX_MESSAGE_CHARS:,} characters. Put it in a file and refer to that."
        )
    return replace(
        job,
        name=literal(fields.name or "", MAX_NAME_CHARS) or job.name,
        schedule=schedule,
        message=message,
        target=target,
        delivery=_read_delivery(job.delivery, fields),
        model=fields.model or job.model,
        thinking=fields.thinking or job.thinking,
        timeout_seconds=fields.timeout_seconds or job.timeout_seconds,
        light_context=light_context,
        delete_after_run=job.delete_after_run if fields.delete_after_run is None else fields.delete_after_run,
        wake_mode=wake_mode,
    )


def _read_schedule(fields: JobFields, now: datetime, zone: str) -> Schedule | None:
    given = [text for text in (fields.at, fields.every, fields.cron) if text is not None]
    if len(given) > 1:
        raise UsageError("A job has one schedule: give only one of at, every and cron.")
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
    """Return the schedule in another time zone, if one is given."""
    if zone is None:
        return schedule
    if not isinstance(schedule, Cron):
        raise UsageError("Only a cron schedule has a time zone. Give the expression (cron) with it.")
    return replace(schedule, zone=zone)


def _read_delivery(before: Delivery, fields: JobFields) -> Delivery:
    delivery = Delivery(
        DeliveryMode(fields.deliver) if fields.deliver else before.mode,
        fields.channel or before.channel,
        fields.to or before.to,
        fields.url or before.url,
    )
    if delivery.mode is DeliveryMode.WEBHOOK and not (delivery.url or "").startswith(("http://", "https://")):
        raise UsageError("Delivery to a webhook needs a URL (url) that starts with http:// or https://.")
    return delivery
