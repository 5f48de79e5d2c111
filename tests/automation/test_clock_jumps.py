"""Changes of the clock: detected, logged once and stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from retinue.automation.clock_jumps import KEPT_JUMPS, ClockJumpLog, format_span, recent_jumps
from retinue.automation.heartbeat import WakeLog, WakeReason, WakeRecord
from retinue.core.clock import ClockWatch, SystemClock
from retinue.core.keys import DEFAULT_AGENT
from retinue.storage.database import Database
from retinue.testing.clock import START, FrozenClock
from tests.databases import DATABASES, open_database


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as database:
        yield database


def test_a_clock_that_is_set_is_noticed_once(clock: FrozenClock) -> None:
    watch = ClockWatch(clock)
    clock.advance(timedelta(days=3))
    assert watch.check() is None
    for by in (timedelta(days=400), -timedelta(days=400), timedelta(hours=-1)):
        clock.set(by)
        clock.advance(timedelta(seconds=2))
        assert watch.check() == by
        assert watch.check() is None


def test_a_slow_correction_is_not_a_jump(clock: FrozenClock) -> None:
    watch = ClockWatch(clock)
    for _ in range(100):
        clock.advance(timedelta(minutes=1))
        clock.set(timedelta(seconds=1))
        assert watch.check() is None


def test_the_clock_of_the_machine_does_not_jump() -> None:
    assert ClockWatch(SystemClock()).check() is None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_jump_is_logged_once_and_stored(
    database: Database, clock: FrozenClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    jumps = ClockJumpLog(database, clock)
    clock.set(timedelta(days=400))
    with caplog.at_level(logging.WARNING):
        assert jumps.check() is not None
        assert jumps.check() is None
    (record,) = caplog.records
    assert record.message == (
        "The clock was set forward by 400 days, from 2026-03-14 15:09:26 to 2027-04-18 15:09:26 UTC. "
        "Next runs of jobs and heartbeats are corrected."
    )
    clock.advance(timedelta(seconds=14))
    clock.set(-timedelta(days=400))
    jumps.check()
    found = recent_jumps(tmp_path / "state.sqlite", clock.now())
    assert [jump.after - jump.before for jump in found] == [timedelta(days=400), -timedelta(days=400)]
    assert recent_jumps(tmp_path / "state.sqlite", START + timedelta(days=8)) == []


def test_a_clock_that_was_set_back_while_no_gateway_ran_is_noticed_at_the_start(
    database: Database, clock: FrozenClock
) -> None:
    assert ClockJumpLog(database, clock).check_start() is None
    wakes = WakeLog(database, clock)
    wakes.record(WakeRecord(DEFAULT_AGENT, START, WakeReason.INTERVAL, "quiet"))
    clock.set(-timedelta(hours=1))
    found = ClockJumpLog(database, clock).check_start()
    assert found is not None
    assert found.before - found.after == timedelta(hours=1)
    wakes.correct_times()
    assert ClockJumpLog(database, clock).check_start() is None
    last = wakes.last(DEFAULT_AGENT)
    assert last is not None
    assert last.at == clock.now()


def test_only_the_latest_jumps_are_kept(database: Database, clock: FrozenClock) -> None:
    jumps = ClockJumpLog(database, clock)
    for _ in range(KEPT_JUMPS + 5):
        clock.set(timedelta(minutes=1))
        jumps.check()
    assert database.read("SELECT count(*) FROM clock_jumps")[0][0] == KEPT_JUMPS


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=14), "14 seconds"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(seconds=3_599.7), "1 hour"),
        (timedelta(hours=36), "1.5 days"),
        (timedelta(days=400), "400 days"),
    ],
)
def test_a_span_is_formatted_in_its_largest_unit(span: timedelta, text: str) -> None:
    assert format_span(span) == text
