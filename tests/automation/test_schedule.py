"""Schedules: when they are due, despite clock changes, jumps and downtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.automation.schedule import (
    At,
    Cron,
    Every,
    Schedule,
    due_slot,
    next_slot,
    parse_at,
    parse_cron,
    parse_every,
)
from retinue.core.errors import UsageError
from tests.examples import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def fired(schedule: Schedule, start: datetime, days: float, tick: timedelta = timedelta(minutes=1)) -> list[datetime]:
    """The slots that somebody serves who looks at the clock every `tick`."""
    served, now, slots = start, start, []
    while now <= start + timedelta(days=days):
        slot = due_slot(schedule, served, now)
        if slot is not None:
            slots.append(slot)
            served = slot
        now += tick
    return slots


def test_a_moment_comes_once() -> None:
    schedule = At(NOON)
    assert next_slot(schedule, NOON - timedelta(hours=1)) == NOON
    assert next_slot(schedule, NOON) is None
    assert fired(schedule, NOON - timedelta(hours=1), 1) == [NOON]


def test_an_interval_is_counted_from_its_anchor() -> None:
    schedule = Every(timedelta(hours=5), NOON)
    assert next_slot(schedule, NOON - timedelta(days=9)) == NOON
    assert next_slot(schedule, NOON) == NOON + timedelta(hours=5)
    assert due_slot(schedule, NOON, NOON + timedelta(hours=17)) == NOON + timedelta(hours=15)
    assert due_slot(schedule, NOON, NOON - timedelta(hours=1)) is None


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["03-29 01:00"]),  # 02:30 does not exist: once, at 03:00
        ("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=UTC), ["10-25 00:30"]),  # 02:30 exists twice: once
        ("0 3 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), ["03-29 01:00"]),
    ],
)
def test_a_daily_job_runs_once_when_the_clock_changes(expression: str, day: datetime, expected: list[str]) -> None:
    slots = fired(Cron(expression, BERLIN), day, 1)
    assert [f"{slot:%m-%d %H:%M}" for slot in slots] == expected


@pytest.mark.parametrize("day", [datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)])
def test_an_hourly_job_runs_every_hour_that_passes(day: datetime) -> None:
    slots = fired(Cron("0 * * * *", BERLIN), day, 1)
    assert {later - earlier for earlier, later in pairwise(slots)} == {timedelta(hours=1)}
    assert len(slots) == 24


def test_missed_slots_are_one() -> None:
    schedule = Cron("0 9 * * *", BERLIN)
    slot = due_slot(schedule, NOON, NOON + timedelta(days=30))
    assert slot == datetime(2026, 3, 31, 7, tzinfo=UTC)
    assert due_slot(schedule, slot, NOON + timedelta(days=30)) is None


def test_a_clock_that_jumps_back_serves_no_slot_again() -> None:
    schedule = Cron("0 9 * * *", "UTC")
    served = due_slot(schedule, NOON, NOON + timedelta(days=2))
    assert served is not None
    for back in range(48):
        assert due_slot(schedule, served, NOON + timedelta(hours=back)) is None


EXPRESSIONS = ["*/7 * * * *", "30 2 * * *", "15 1-3 * * *", "0 0 1 * *", "*/20 2 * * 0", "0 9 * * 1-5", "59 23 31 12 *"]
ZONES = [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    start=st.integers(0, 2 * 365 * 24 * 3600),
    minutes=st.integers(1, 20_000),
)
def test_what_is_due_is_the_last_of_what_comes_next(expression: str, zone: str, start: int, minutes: int) -> None:
    schedule = Cron(expression, zone)
    served = NOON + timedelta(seconds=start)
    now = served + timedelta(minutes=minutes)
    latest, slot = None, next_slot(schedule, served)
    while slot is not None and slot <= now:
        latest, slot = slot, next_slot(schedule, slot)
    assert due_slot(schedule, served, now) == latest


def test_times_are_read_as_people_write_them() -> None:
    assert parse_at("20m", NOON, BERLIN) == At(NOON + timedelta(minutes=20))
    assert parse_at("2026-12-24T18:00", NOON, BERLIN).when.astimezone(UTC) == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert parse_at("2026-12-24T18:00:00+00:00", NOON, BERLIN).when == datetime(2026, 12, 24, 18, tzinfo=UTC)
    assert str(parse_every("90m", NOON)) == "every 1h30m"
    assert str(parse_cron("0  9 * *   1-5", BERLIN)) == "cron '0 9 * * 1-5' (Europe/Berlin)"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: parse_at("tomorrow", NOON, BERLIN), "is not a valid time"),
        (lambda: parse_every("0m", NOON), "at least a second"),
        (lambda: parse_every("often", NOON), "is not a valid interval"),
        (lambda: parse_cron("0 9 * *", BERLIN), "five fields"),
        (lambda: parse_cron("0 25 * * *", BERLIN), "is not a cron expression"),
        (lambda: parse_cron("0 0 30 2 *", BERLIN), "cron expression"),
        (lambda: parse_cron("0 9 * * *", "Mars/Olympus"), "There is no time zone 'Mars/Olympus'"),
        (lambda: parse_cron("0 9 * * *", "../../etc/passwd"), "There is no time zone"),
    ],
)
def test_what_cannot_be_read_says_what_to_write(wrong: object, told: str) -> None:
    assert callable(wrong)
    with pytest.raises(UsageError, match=told):
        wrong()


@pytest.mark.parametrize("minutes", range(0, 180, 10))
def test_the_next_slot_in_a_repeated_hour_is_the_same_from_every_time(minutes: int) -> None:
    before = datetime(2026, 10, 24, 23, 50, tzinfo=UTC)
    slots = fired(Cron("30 2 * * *", BERLIN), before, 2)
    now = before + timedelta(minutes=minutes)
    assert next_slot(Cron("30 2 * * *", BERLIN), now) == next(slot for slot in slots if slot > now)
