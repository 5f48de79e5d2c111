"""Heartbeat decisions: whether to run now, when to run next, and whether an answer is a repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey

REPEATS_WITHIN = timedelta(hours=24)
"""The same text is not delivered again within this time."""

MIN_GAP = timedelta(seconds=30)
"""Wakes within this time count as one."""

_NOTHING = re.compile(r"\s*|#{1,6}(\s.*)?|[-*+]\s*(\[[ xX]?\]\s*)?|```.*|~~~.*|---+")
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)


class WakeReason(StrEnum):
    """Why the agent was woken."""

    INTERVAL = "interval"
    COMMAND = "command"
    CRON = "cron"
    HOOK = "hook"
    BOOT = "boot"
    SUBAGENT = "subagent"
    MANUAL = "manual"


class SkipReason(StrEnum):
    """Why a heartbeat is skipped without a model call."""

    OFF = "heartbeats are off"
    OUTSIDE_HOURS = "it is outside the active hours"
    BUSY = "the agent is busy"
    NOTHING_TO_DO = "HEARTBEAT.md has no tasks"
    NOTHING_NEW = "the last heartbeat was a moment ago"
    NO_ROUTE = "there is no delivery target"
    BUDGET = "the budget for heartbeats is used up"


class ActiveWindow(Struct, frozen=True):
    """The hours in which a heartbeat may run. The end is exclusive; before the start, it means the next day."""

    start: time
    end: time | None
    """None means midnight at the end of the day."""

    def contains(self, moment: time) -> bool:
        if self.end is None:
            return moment >= self.start
        if self.start == self.end:
            return False
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


class HeartbeatSituation(Struct, frozen=True):
    """The facts when a heartbeat is due; `checklist` is the text of HEARTBEAT.md, None if there is none."""

    local: datetime
    every: timedelta
    window: ActiveWindow | None
    checklist: str | None
    busy: bool = False
    budget_left: bool = True
    wake: WakeReason = WakeReason.INTERVAL
    has_news: bool = False
    """Whether notes are pending, so that an empty checklist is not a reason to skip."""
    since_last: timedelta | None = None
    has_route: bool = True
    """Whether there is a target to deliver its answer to, if it should be delivered."""


def find_skip(situation: HeartbeatSituation) -> SkipReason | None:
    """Return why to skip the heartbeat, or None. A manual wake ignores interval, active hours and the minimum gap."""
    by_hand = situation.wake is WakeReason.MANUAL
    if not situation.every and not by_hand:
        return SkipReason.OFF
    if not by_hand and situation.window is not None and not situation.window.contains(situation.local.time()):
        return SkipReason.OUTSIDE_HOURS
    if situation.busy:
        return SkipReason.BUSY
    if not situation.budget_left:
        return SkipReason.BUDGET
    if not situation.has_route:
        return SkipReason.NO_ROUTE
    if situation.since_last is not None and situation.since_last < MIN_GAP and not by_hand:
        return SkipReason.NOTHING_NEW
    if not situation.has_news and situation.checklist is not None and is_empty_checklist(situation.checklist):
        return SkipReason.NOTHING_TO_DO
    return None


def heartbeat_session(agent: AgentId, named: str, *, isolated: bool) -> SessionKey:
    """Return the session of an agent's heartbeats: the named one, or an isolated one."""
    return SessionKey.parse(f"agent:{agent}:heartbeat" if isolated else named, default_agent=agent)


def is_empty_checklist(checklist: str) -> bool:
    """Return whether a checklist has only headings, empty boxes, fences, comments and blank lines."""
    return all(_NOTHING.fullmatch(line.strip()) for line in _COMMENT.sub("", checklist).splitlines())


def next_heartbeat(last: datetime | None, every: timedelta, now: datetime) -> datetime | None:
    """Return when the next heartbeat is due; a clock that is set back delays it by at most one interval."""
    if not every:
        return None
    if last is None or last > now:
        return now + every
    return max(last + every, now)


def read_window(start: str | None, end: str | None) -> ActiveWindow | None:
    """Return the window between two times such as `08:00` and `24:00`; None if neither is set."""
    if start is None and end is None:
        return None
    last = None if end in (None, "24:00") else _read_time(end)
    return ActiveWindow(_read_time(start or "00:00"), last)


def _read_time(text: str | None) -> time:
    hours, _, minutes = (text or "00:00").partition(":")
    return time(int(hours), int(minutes))


class DeliveredText(Struct, frozen=True):
    """The hash and time of a text that a heartbeat delivered."""

    digest: str
    at: datetime


def digest_of(text: str) -> str:
    """Return a hash that ignores white space and case."""
    return sha256(" ".join(text.lower().split()).encode()).hexdigest()[:32]


def is_repeat(text: str, before: Sequence[DeliveredText], now: datetime) -> bool:
    """Return whether the same text was delivered recently."""
    digest = digest_of(text)
    return any(said.digest == digest and now - said.at < REPEATS_WITHIN for said in before)
