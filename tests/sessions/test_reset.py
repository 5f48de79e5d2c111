"""When a session starts over by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.keys import SessionId, SessionKey
from retinue.sessions.reset import NEVER, ResetPolicy, ResetReason, daily_boundary, policy_for, should_reset
from retinue.sessions.session import Session
from retinue.sessions.settings import SessionSettings
from retinue.structs.decode import decode
from tests.examples import examples

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"]
).map(ZoneInfo)
MOMENTS = st.datetimes(datetime(2010, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def a_session(started: datetime, heard: datetime | None = None) -> Session:
    return Session(SessionKey.parse("main"), SessionId("s"), started, started, last_interaction_at=heard)


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


@settings(max_examples=examples(300))
@given(MOMENTS, st.integers(0, 23), ZONES)
def test_the_boundary_is_the_latest_local_hour_that_has_passed(now: datetime, hour: int, zone: ZoneInfo) -> None:
    boundary = daily_boundary(now, hour, zone)
    assert boundary <= now
    # A day has at most 25 hours; Samoa once left one out.
    assert now - boundary < timedelta(hours=25 if zone.key != "Pacific/Apia" else 50)
    local = boundary.astimezone(zone)
    skipped = boundary.astimezone(zone).replace(hour=hour, minute=0).astimezone(UTC) != boundary
    assert (local.hour, local.minute) == (hour, 0) or skipped
    assert daily_boundary(boundary, hour, zone) == boundary
    assert daily_boundary(boundary - timedelta(microseconds=1), hour, zone) < boundary


@settings(max_examples=examples(300))
@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=3)), st.integers(0, 23), ZONES)
def test_a_session_starts_over_exactly_when_the_hour_passed_since_it_began(
    started: datetime, age: timedelta, hour: int, zone: ZoneInfo
) -> None:
    now = started + age
    reason = should_reset(a_session(started), ResetPolicy("daily", hour), now, zone)
    assert (reason is ResetReason.DAILY) == (daily_boundary(now, hour, zone) > started)
    if reason is None:
        assert age < timedelta(hours=50)


@pytest.mark.parametrize(
    ("now", "boundary"),
    [
        ("2026-01-10T03:59:59.999", "2026-01-09T04:00"),
        ("2026-01-10T04:00", "2026-01-10T04:00"),
        ("2026-03-29T03:30", "2026-03-28T04:00"),  # the night that is an hour shorter
        ("2026-03-29T04:00", "2026-03-29T04:00"),
        ("2026-10-25T04:00", "2026-10-25T04:00"),  # the night that is an hour longer
        ("2026-10-25T03:00", "2026-10-24T04:00"),
    ],
)
def test_four_in_the_morning_is_local(now: str, boundary: str) -> None:
    assert daily_boundary(at(now), 4, BERLIN) == at(boundary).astimezone(UTC)


def test_an_hour_that_is_skipped_or_comes_twice_counts_once() -> None:
    jump = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert daily_boundary(jump, 2, BERLIN) == jump
    assert daily_boundary(jump - timedelta(seconds=1), 2, BERLIN) == at("2026-03-28T02:00").astimezone(UTC)
    first, second = datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)
    assert daily_boundary(first, 2, BERLIN) == first
    assert daily_boundary(second, 2, BERLIN) == first


def test_times_of_any_zone_compare_as_moments() -> None:
    now = datetime(2026, 1, 10, 11, tzinfo=timezone(timedelta(hours=9)))
    assert daily_boundary(now, 4, BERLIN) == at("2026-01-09T04:00").astimezone(UTC)


def test_silence_is_counted_from_what_a_person_said() -> None:
    idle = ResetPolicy("idle", idle=timedelta(minutes=30))
    start = at("2026-01-10T10:00")
    heard = a_session(start, start)
    assert should_reset(heard, idle, start + timedelta(minutes=29, seconds=59), BERLIN) is None
    assert should_reset(heard, idle, start + timedelta(minutes=30), BERLIN) is ResetReason.IDLE
    assert should_reset(a_session(start), idle, start + timedelta(days=9), BERLIN) is None
    assert should_reset(heard, ResetPolicy("idle"), start + timedelta(days=9), BERLIN) is None


def test_in_a_daily_session_silence_may_come_first() -> None:
    both = ResetPolicy("daily", 4, timedelta(hours=2))
    start = at("2026-01-10T10:00")
    session = a_session(start, start)
    assert should_reset(session, both, start + timedelta(hours=1), BERLIN) is None
    assert should_reset(session, both, start + timedelta(hours=2), BERLIN) is ResetReason.IDLE
    assert should_reset(session, both, start + timedelta(days=1), BERLIN) is ResetReason.DAILY


def test_none_never_starts_over_and_a_clock_set_back_changes_nothing() -> None:
    start = at("2026-01-10T10:00")
    assert should_reset(a_session(start, start), NEVER, start + timedelta(days=900), BERLIN) is None
    policy = ResetPolicy("daily", 4, timedelta(hours=2))
    assert should_reset(a_session(start, start), policy, start - timedelta(days=5), BERLIN) is None


def settings_of(**values: object) -> SessionSettings:
    return decode(SessionSettings, values)


def policy(settings: SessionSettings, key: str) -> ResetPolicy:
    return policy_for(settings, SessionKey.parse(key))


def test_the_channels_rule_beats_the_kinds_rule_beats_the_general_one() -> None:
    rules = settings_of(
        reset={"atHour": 1},
        resetByType={"direct": {"atHour": 2}, "group": {"atHour": 3}, "thread": {"atHour": 5}},
        resetByChannel={"Slack": {"mode": "idle", "idleMinutes": 7}},
    )
    assert policy(rules, "agent:main:slack:group:g1") == ResetPolicy("idle", 4, timedelta(minutes=7))
    assert policy(rules, "agent:main:telegram:group:g1").at_hour == 3
    assert policy(rules, "agent:main:telegram:channel:c1").at_hour == 3
    assert policy(rules, "agent:main:telegram:group:g1:thread:9").at_hour == 5
    assert policy(rules, "agent:main:telegram:direct:ann").at_hour == 2
    assert policy(rules, "main").at_hour == 2
    general = settings_of(reset={"atHour": 1}, resetByType={"group": {"atHour": 3}})
    assert policy(general, "main").at_hour == 1
    assert policy(general, "agent:main:telegram:group:g1:topic:9").at_hour == 1


def test_dm_is_another_word_for_direct() -> None:
    assert policy(settings_of(resetByType={"dm": {"mode": "none"}}), "main").mode == "none"
    both = settings_of(resetByType={"dm": {"mode": "none"}, "direct": {"atHour": 6}})
    assert policy(both, "main") == ResetPolicy("daily", 6)


def test_by_default_every_day_at_four() -> None:
    assert policy(settings_of(), "main") == ResetPolicy("daily", 4, None)


def test_the_old_key_alone_means_silence_alone() -> None:
    assert policy(settings_of(idleMinutes=45), "main") == ResetPolicy("idle", 4, timedelta(minutes=45))
    mixed = settings_of(idleMinutes=45, reset={"atHour": 6})
    assert policy(mixed, "main") == ResetPolicy("daily", 6, timedelta(minutes=45))
    newer = settings_of(idleMinutes=45, reset={"idleMinutes": 10})
    assert policy(newer, "main") == ResetPolicy("daily", 4, timedelta(minutes=10))


def test_a_sub_agent_never_starts_over() -> None:
    assert policy(settings_of(), "agent:main:subagent:1234") is NEVER
