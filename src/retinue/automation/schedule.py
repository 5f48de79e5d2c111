"""Schedules: pure functions that return when a schedule is due.

All times are aware. A clock that jumps never runs a slot twice: the caller stores the last slot that ran, and asks for
slots after it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, field

from retinue.core.errors import UsageError
from retinue.settings import format_duration, parse_duration

MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(days=3660)
OFTEN = timedelta(minutes=1)
"""Below this interval somebody must confirm a job."""
_REPEATED = timedelta(hours=2)
"""Longer than any time change sets a clock back."""


class At(Struct, frozen=True, tag_field="kind", tag="at"):
    """Once, at a time."""

    when: datetime = field(name="at")

    def __str__(self) -> str:
        return f"at {self.when.isoformat(timespec='seconds')}"


class Every(Struct, frozen=True, tag_field="kind", tag="every"):
    """Repeatedly, at an interval counted from a time."""

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
    """Parse an ISO time (in `zone` if it has none), or a time from now such as `20m`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return At(now + _parse_interval(text, f"'{text}' is not a valid time. Use 2026-12-24T18:00 or 20m."))
    return At(moment if moment.tzinfo is not None else moment.replace(tzinfo=find_zone(zone)))


def parse_every(text: str, anchor: datetime) -> Every:
    """Parse an interval such as `30m`, counted from a time."""
    return Every(_parse_interval(text, f"'{text}' is not a valid interval. Use 30m, 2h or 1d."), anchor)


def parse_cron(expression: str, zone: str) -> Cron:
    """Parse a cron expression of five fields; raise `UsageError` if it is invalid or never matches."""
    cron = Cron(" ".join(expression.split()), zone)
    if next_slot(cron, datetime(2026, 1, 1, tzinfo=UTC)) is None:
        raise UsageError(f"The cron expression '{expression}' never matches.")
    return cron


def describe_high_frequency(schedule: Schedule) -> str | None:
    """Return how often a schedule is due that is so frequent that a person must confirm it, otherwise None."""
    if not isinstance(schedule, Every) or schedule.interval >= OFTEN:
        return None
    return f"This job would run {timedelta(days=1) // schedule.interval:,} times a day, and each run calls the model."


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"There is no time zone '{name}'. Use a name such as Europe/Berlin or UTC.") from None


def next_slot(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first slot after `after`; None if there is none."""
    match schedule:
        case At(when):
            return when if when > after else None
        case Every(interval, anchor):
            if after < anchor:
                return anchor
            return anchor + ((after - anchor) // interval + 1) * interval
        case Cron():
            if not after.astimezone(find_zone(schedule.zone)).fold:
                return _next_cron(schedule, after)
            # In the hour that a time change repeats, only the slots before it show which slots are left.
            slot = _next_cron(schedule, after - _REPEATED)
            while slot is not None and slot <= after:
                slot = _next_cron(schedule, slot)
            return slot
    assert_never(schedule)


def due_slot(schedule: Schedule, served: datetime, now: datetime) -> datetime | None:
    """Return the latest slot after the last one that ran and not after now.

    Several missed slots count as one: after a night without power a job runs once, for its last slot.
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
    """Return the last slot that is not after now.

    Searching backwards only finds an approximate slot; the slots are computed forwards, because the two directions
    differ in the hour that a time change repeats.
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


@lru_cache(maxsize=256)
def _next_cron(cron: Cron, after: datetime) -> datetime | None:
    """Return the first slot after `after`; the start and the end of a run ask for the same slots several times."""
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


def _parse_interval(text: str, problem: str) -> timedelta:
    try:
        interval = parse_duration(text)
    except ValueError:
        raise UsageError(problem) from None
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise UsageError(f"'{text}' is out of range: use at least a second and at most ten years.")
    return interval
