"""The heartbeat's decisions: whether to beat now, when to beat next, and what of an answer is worth saying."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey

REPEATS_WITHIN = timedelta(hours=24)
"""The same words are not said again so soon."""

SHORTEST_GAP = timedelta(seconds=30)
"""Wakes that come closer together than this are one."""

_NOTHING = re.compile(r"\s*|#{1,6}(\s.*)?|[-*+]\s*(\[[ xX]?\]\s*)?|```.*|~~~.*|---+")
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)


class Wake(StrEnum):
    """Why the agent was woken."""

    INTERVAL = "interval"
    COMMAND = "command"
    CRON = "cron"
    HOOK = "hook"
    BOOT = "boot"
    SUBAGENT = "subagent"
    MANUAL = "manual"


class Skip(StrEnum):
    """Why a heartbeat makes no call to a model."""

    OFF = "heartbeats are off"
    OUTSIDE_HOURS = "it is outside the active hours"
    BUSY = "the agent is at work"
    NOTHING_TO_DO = "HEARTBEAT.md asks for nothing"
    NOTHING_NEW = "the last heartbeat was just now"
    NO_ROUTE = "there is nowhere to deliver to"
    BUDGET = "the budget for heartbeats is used up"


class ActiveWindow(Struct, frozen=True):
    """The hours in which a heartbeat may run; the end is exclusive, and may be before the start, over midnight."""

    start: time
    end: time | None
    """None is midnight at the end of the day."""

    def contains(self, moment: time) -> bool:
        if self.end is None:
            return moment >= self.start
        if self.start == self.end:
            return False
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


class Situation(Struct, frozen=True):
    """What is known when a heartbeat is due; `checklist` is HEARTBEAT.md, None where there is none."""

    local: datetime
    every: timedelta
    window: ActiveWindow | None
    checklist: str | None
    busy: bool = False
    budget_left: bool = True
    wake: Wake = Wake.INTERVAL
    has_news: bool = False
    """Whether something waits on the agenda, so that an empty checklist is no reason."""
    since_last: timedelta | None = None
    has_route: bool = True
    """Whether what it says could be delivered, where it should be."""


def find_skip(situation: Situation) -> Skip | None:
    """Why not to beat now; None to beat. Somebody who asks by hand is refused only what cannot be."""
    by_hand = situation.wake is Wake.MANUAL
    if not situation.every and not by_hand:
        return Skip.OFF
    if not by_hand and situation.window is not None and not situation.window.contains(situation.local.time()):
        return Skip.OUTSIDE_HOURS
    if situation.busy:
        return Skip.BUSY
    if not situation.budget_left:
        return Skip.BUDGET
    if not situation.has_route:
        return Skip.NO_ROUTE
    if situation.since_last is not None and situation.since_last < SHORTEST_GAP and not by_hand:
        return Skip.NOTHING_NEW
    if not situation.has_news and situation.checklist is not None and asks_for_nothing(situation.checklist):
        return Skip.NOTHING_TO_DO
    return None


def session_of_beats(agent: AgentId, named: str, *, isolated: bool) -> SessionKey:
    """The session that an agent's heartbeats belong to: the one that is named, or one of their own."""
    return SessionKey.parse(f"agent:{agent}:heartbeat" if isolated else named, default_agent=agent)


def asks_for_nothing(checklist: str) -> bool:
    """Whether a checklist has only headings, empty boxes, fences, comments and blank lines."""
    return all(_NOTHING.fullmatch(line.strip()) for line in _COMMENT.sub("", checklist).splitlines())


def next_beat(last: datetime | None, every: timedelta, now: datetime) -> datetime | None:
    """When the next heartbeat is due; a clock that was set back does not put it off by more than one interval."""
    if not every:
        return None
    if last is None or last > now:
        return now + every
    return max(last + every, now)


def read_window(start: str | None, end: str | None) -> ActiveWindow | None:
    """The window of two times such as `08:00` and `24:00`; None where neither is set."""
    if start is None and end is None:
        return None
    last = None if end in (None, "24:00") else _read_time(end)
    return ActiveWindow(_read_time(start or "00:00"), last)


def _read_time(text: str | None) -> time:
    hours, _, minutes = (text or "00:00").partition(":")
    return time(int(hours), int(minutes))


class Said(Struct, frozen=True):
    """Something a heartbeat delivered, by the hash of its words."""

    digest: str
    at: datetime


def digest_of(text: str) -> str:
    """The same for texts that differ only in white space and case."""
    return sha256(" ".join(text.lower().split()).encode()).hexdigest()[:32]


def is_repeat(text: str, before: Sequence[Said], now: datetime) -> bool:
    """Whether the same was said not long ago."""
    digest = digest_of(text)
    return any(said.digest == digest and now - said.at < REPEATS_WITHIN for said in before)
