"""Heartbeat decisions."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from msgspec.structs import replace

from retinue.automation.heartbeat import (
    ActiveWindow,
    DeliveredText,
    HeartbeatSituation,
    SkipReason,
    WakeReason,
    digest_of,
    find_skip,
    is_empty_checklist,
    is_repeat,
    next_heartbeat,
    read_window,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HALF_AN_HOUR = timedelta(minutes=30)
QUIET = HeartbeatSituation(NOON, HALF_AN_HOUR, None, "- [ ] look at the inbox")


@pytest.mark.parametrize(
    ("situation", "skip"),
    [
        (QUIET, None),
        (replace(QUIET, checklist=None), None),
        (replace(QUIET, every=timedelta()), SkipReason.OFF),
        (replace(QUIET, every=timedelta(), wake=WakeReason.MANUAL), None),
        (replace(QUIET, window=ActiveWindow(time(13), time(18))), SkipReason.OUTSIDE_HOURS),
        (replace(QUIET, window=ActiveWindow(time(13), time(18)), wake=WakeReason.MANUAL), None),
        (replace(QUIET, busy=True), SkipReason.BUSY),
        (replace(QUIET, budget_left=False), SkipReason.BUDGET),
        (replace(QUIET, budget_left=False, wake=WakeReason.MANUAL), SkipReason.BUDGET),
        (replace(QUIET, checklist="# Heartbeat\n"), SkipReason.NOTHING_TO_DO),
        (replace(QUIET, checklist="# Heartbeat\n", has_news=True, wake=WakeReason.COMMAND), None),
        (replace(QUIET, since_last=timedelta(seconds=1)), SkipReason.NOTHING_NEW),
        (replace(QUIET, since_last=timedelta(seconds=1), wake=WakeReason.MANUAL), None),
    ],
)
def test_when_a_heartbeat_makes_no_call(situation: HeartbeatSituation, skip: SkipReason | None) -> None:
    assert find_skip(situation) == skip


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        (("08:00", "24:00"), ["08:00", "23:59"], ["07:59", "00:00"]),
        (("08:00", "17:30"), ["08:00", "17:29"], ["17:30", "07:59"]),
        (("22:00", "06:00"), ["22:00", "00:00", "05:59"], ["06:00", "21:59"]),
        (("09:00", "09:00"), [], ["09:00", "12:00"]),
        ((None, "09:00"), ["00:00", "08:59"], ["09:00"]),
        (("09:00", None), ["09:00", "23:59"], ["08:59"]),
    ],
)
def test_active_hours(window: tuple[str | None, str | None], inside: list[str], outside: list[str]) -> None:
    read = read_window(*window)
    assert read is not None
    assert [text for text in inside + outside if read.contains(time.fromisoformat(text))] == inside


def test_without_hours_it_is_always_active() -> None:
    assert read_window(None, None) is None


@pytest.mark.parametrize(
    "checklist", ["", "\n\n", "# Heartbeat\n## Later", "- [ ]\n* [x]\n- ", "<!-- - mail\n- more -->", "```\n```\n---"]
)
def test_a_checklist_that_asks_for_nothing(checklist: str) -> None:
    assert is_empty_checklist(checklist)


@pytest.mark.parametrize(
    "checklist", ["- [ ] mail", "Look at the calendar.", "# Heartbeat\n\n1. mail", "<!-- x --> mail"]
)
def test_a_checklist_that_asks_for_something(checklist: str) -> None:
    assert not is_empty_checklist(checklist)


def test_the_next_beat_follows_the_last_one() -> None:
    assert next_heartbeat(None, HALF_AN_HOUR, NOON) == NOON + HALF_AN_HOUR
    assert next_heartbeat(NOON - timedelta(minutes=10), HALF_AN_HOUR, NOON) == NOON + timedelta(minutes=20)
    assert next_heartbeat(NOON - timedelta(days=3), HALF_AN_HOUR, NOON) == NOON
    assert next_heartbeat(NOON + timedelta(days=1), HALF_AN_HOUR, NOON) == NOON + HALF_AN_HOUR  # the clock was set back
    assert next_heartbeat(NOON, timedelta(), NOON) is None


def test_the_same_words_are_not_said_twice_in_a_day() -> None:
    before = [DeliveredText(digest_of("The build is red."), NOON)]
    assert is_repeat("the  build is RED.", before, NOON + timedelta(hours=23))
    assert not is_repeat("The build is red.", before, NOON + timedelta(hours=24))
    assert not is_repeat("The build is green.", before, NOON)
