"""When something is due: pure functions of a schedule and the time.

All moments are aware. A clock that jumps never makes a slot fire twice: whoever runs jobs remembers the last slot that
was served, and asks for what came due after it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, field

from retinue.core.errors import UsageError
from retinue.settings import format_duration, parse_duration

SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=3660)
_REPEATED = timedelta(hours=2)
"""More than any clock is ever set back."""


class At(Struct, frozen=True, tag_field="kind", tag="at"):
    """Once, at a moment."""

    when: datetime = field(name="at")

    def __str__(self) -> str:
        return f"at {self.when.isoformat(timespec='seconds')}"


class Every(Struct, frozen=True, tag_field="kind", tag="every"):
    """Again and again, counted from a moment."""

    interval: timedelta = field(name="everyMs")
    """In JSON a whole number of milliseconds."""
    anchor: datetime

    def __str__(self) -> str:
        return f"every {format_duration(self.interval)}"


class Cron(Struct, frozen=True, tag_field="kind", tag="cron"):
    """By a cron expression in a time zone."""

    expression: str = field(name="expr")
    zone: str = field(default="UTC", name="tz")

    def __str__(self) -> str:
        return f"cron '{self.expression}' ({self.zone})"


Schedule = At | Every | Cron


def parse_at(text: str, now: datetime, zone: str) -> At:
    """A moment: an ISO time (in the zone where it names none), or a time from now such as `20m`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return At(now + _parse_interval(text, f"'{text}' is neither a time such as 2026-12-24T18:00 nor one from now"))
    return At(moment if moment.tzinfo is not None else moment.replace(tzinfo=find_zone(zone)))


def parse_every(text: str, anchor: datetime) -> Every:
    """An interval such as `30m`, counted from a moment."""
    return Every(_parse_interval(text, f"'{text}' is not an interval"), anchor)


def parse_cron(expression: str, zone: str) -> Cron:
    """A cron expression of five fields; raises `UsageError` where it is none or never comes true."""
    cron = Cron(" ".join(expression.split()), zone)
    if next_slot(cron, datetime(2026, 1, 1, tzinfo=UTC)) is None:
        raise UsageError(f"The cron expression '{expression}' never comes true.")
    return cron


def find_zone(name: str) -> ZoneInfo:
    """A time zone by its name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"There is no time zone '{name}'. Use a name such as Europe/Berlin or UTC.") from None


def next_slot(schedule: Schedule, after: datetime) -> datetime | None:
    """The first moment after `after` that the schedule names; None where there is none any more."""
    match schedule:
        case At(when):
            return when if when > after else None
        case Every(interval, anchor):
            if after < anchor:
                return anchor
            return anchor + ((after - anchor) // interval + 1) * interval
        case Cron():
            return _next_cron(schedule, after)
    assert_never(schedule)


def due_slot(schedule: Schedule, served: datetime, now: datetime) -> datetime | None:
    """The latest slot after the one that was served last and not after now.

    Several that were missed are one: after a night without power a job runs once, for the last of its slots.
    """
    match schedule:
        case At(when):
            latest = when if when <= now else None
        case Every(interval, anchor):
            latest = anchor + (now - anchor) // interval * interval if now >= anchor else None
        case Cron():
            latest = _latest_cron(schedule, now)
        case _:
            assert_never(schedule)
    return latest if latest is not None and latest > served else None


def _latest_cron(cron: Cron, now: datetime) -> datetime | None:
    """The last slot that is not after now.

    Walking back finds the neighbourhood; which slots there are is decided walking forward, because the two differ in
    the hour that a change of the clock repeats.
    """
    from cronsim import CronSim

    local = now.astimezone(find_zone(cron.zone))
    try:
        near = next(CronSim(cron.expression, local + timedelta(seconds=1), reverse=True)).astimezone(UTC)
    except StopIteration:
        return None
    latest = None
    slot = _next_cron(cron, near - _REPEATED)
    while slot is not None and slot <= now:
        latest, slot = slot, _next_cron(cron, slot)
    return latest


def _next_cron(cron: Cron, after: datetime) -> datetime | None:
    from cronsim import CronSim, CronSimError

    local = after.astimezone(find_zone(cron.zone))
    try:
        return next(CronSim(cron.expression, local)).astimezone(UTC)
    except StopIteration:
        return None
    except CronSimError as error:
        raise UsageError(
            f"'{cron.expression}' is not a cron expression ({error}). It has five fields, minute, hour, day, month and "
            "weekday, as in `0 9 * * 1-5`."
        ) from None


def _parse_interval(text: str, complaint: str) -> timedelta:
    try:
        interval = parse_duration(text)
    except ValueError:
        raise UsageError(f"{complaint}; write it like 30m, 2h or 1d.") from None
    if not SHORTEST <= interval <= LONGEST:
        raise UsageError(f"{complaint}: it must be at least a second and at most ten years.")
    return interval
