"""Automatic session resets: daily and after idle time."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from retinue.core.keys import SessionKey, SessionKind
from retinue.sessions.session import Session
from retinue.sessions.settings import ResetMode, ResetSettings, SessionSettings
from retinue.structs.declare import set_attributes


class ResetReason(StrEnum):
    """Why a session is reset."""

    DAILY = "daily"
    IDLE = "idle"


class ResetPolicy(Struct, frozen=True):
    """The reset rule of one session; `idle` is None if there is no idle limit."""

    mode: ResetMode = "daily"
    at_hour: int = 4
    idle: timedelta | None = None


NEVER = ResetPolicy("none")


def policy_for(settings: SessionSettings, key: SessionKey) -> ResetPolicy:
    """Return the rule for a key: that of its channel, else of its chat type, else the general one.

    A sub-agent's session is never reset.
    """
    if key.kind is SessionKind.SUBAGENT:
        return NEVER
    by_channel = {name.lower(): rule for name, rule in settings.reset_by_channel.items()}
    rule = by_channel.get(key.channel or "") or _by_type(settings, key)
    if rule is not None:
        return _policy(rule)
    base = _policy(settings.reset)
    if settings.idle_minutes is None or "idle_minutes" in set_attributes(settings.reset):
        return base
    # A configuration with only the deprecated key means an idle limit without a daily reset.
    alone = set_attributes(settings).isdisjoint({"reset", "reset_by_type"})
    return ResetPolicy("idle" if alone else base.mode, base.at_hour, _minutes(settings.idle_minutes))


def should_reset(session: Session, policy: ResetPolicy, now: datetime, zone: tzinfo) -> ResetReason | None:
    """Return why the session must be reset before the next message, or None."""
    match policy.mode:
        case "none":
            return None
        case "daily":
            if session.started_at < daily_boundary(now, policy.at_hour, zone):
                return ResetReason.DAILY
            return ResetReason.IDLE if _is_idle(session, policy, now) else None
        case "idle":
            return ResetReason.IDLE if _is_idle(session, policy, now) else None
        case _:
            assert_never(policy.mode)


def daily_boundary(now: datetime, hour: int, zone: tzinfo) -> datetime:
    """Return the latest time (UTC), not after `now`, at which the local time was that full hour.

    If daylight saving skips the hour, it is the time of the change; if the hour occurs twice, the first one counts.
    """
    day = now.astimezone(zone).date()
    while True:
        boundary = datetime.combine(day, time(hour), tzinfo=zone).astimezone(UTC)
        if boundary <= now:
            return boundary
        day -= timedelta(days=1)


def _is_idle(session: Session, policy: ResetPolicy, now: datetime) -> bool:
    heard = session.last_interaction_at
    return policy.idle is not None and heard is not None and now - heard >= policy.idle


def _by_type(settings: SessionSettings, key: SessionKey) -> ResetSettings | None:
    rules = settings.reset_by_type
    if key.thread is not None:
        return rules.thread
    if key.kind.is_shared:
        return rules.group
    return rules.direct or rules.dm


def _policy(rule: ResetSettings) -> ResetPolicy:
    return ResetPolicy(rule.mode, rule.at_hour, _minutes(rule.idle_minutes))


def _minutes(count: int) -> timedelta | None:
    return timedelta(minutes=count) if count else None
