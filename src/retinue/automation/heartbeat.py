"""Heartbeats: whether to run now, when to run next, whether an answer is a repeat; the log of wakes; pending notes.

A pending note waits for the next heartbeat of an agent, because it needs no turn of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from hashlib import sha256
from itertools import takewhile
from typing import Any

from msgspec import Struct

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.keys import AgentId, SessionKey
from retinue.storage.database import Database

REPEATS_WITHIN = timedelta(hours=24)
"""The same text is not delivered again within this time."""

MIN_GAP = timedelta(seconds=30)
"""Wakes within this time count as one."""

KEPT = timedelta(days=30)
"""How long wakes are stored, and notes after they were read, so that the same token is not accepted again."""

QUIET_BEFORE_SLOWER = 12
"""After this many heartbeats in a row without a report, the interval doubles."""

MAX_DOUBLINGS = 2

WOKEN = "woken"
"""The outcome of a wake that was not a heartbeat: the agent got a separate turn for it."""

_NOTHING = re.compile(r"\s*|#{1,6}(\s.*)?|[-*+]\s*(\[[ xX]?\]\s*)?|```.*|~~~.*|---+")
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)


_INSERT = """
INSERT INTO heartbeats (agent, at, wake, outcome, detail, digest, tokens) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_BEGIN = "INSERT INTO heartbeat_starts (agent, at) VALUES (?, ?) ON CONFLICT DO NOTHING"
_PUT = 'INSERT INTO agenda (agent, at, text, "foreign", token) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING'
_WAITING = 'SELECT id, text, "foreign" FROM agenda WHERE agent = ? AND read_at IS NULL ORDER BY id'
_READ = "UPDATE agenda SET read_at = ?, text = '' WHERE id = ?"
_FORGET = "DELETE FROM agenda WHERE read_at < ?"


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
    DEMO = "the demo model has no heartbeats"


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
    """The time since the last heartbeat that was not skipped."""
    has_route: bool = True
    """Whether there is a target to deliver its answer to, if it should be delivered."""
    is_demo: bool = False
    """Whether the model that would answer is only a demo."""


def find_skip(situation: HeartbeatSituation) -> SkipReason | None:
    """Return why to skip the heartbeat, or None. A manual wake ignores interval, active hours and the minimum gap."""
    by_hand = situation.wake is WakeReason.MANUAL
    if not situation.every and not by_hand:
        return SkipReason.OFF
    if not by_hand and situation.window is not None and not situation.window.contains(situation.local.time()):
        return SkipReason.OUTSIDE_HOURS
    if situation.is_demo:
        return SkipReason.DEMO
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


def slow_down(every: timedelta, quiet: int) -> timedelta:
    """Return the interval after a number of heartbeats in a row that had nothing to report."""
    doubled: int = 2 ** min(quiet // QUIET_BEFORE_SLOWER, MAX_DOUBLINGS)
    return every * doubled


def next_heartbeat(last: datetime | None, every: timedelta, now: datetime) -> datetime | None:
    """Return when the next heartbeat is due, given the last one: never later than an interval from now."""
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


class WakeRecord(Struct, frozen=True):
    """One wake of an agent. `outcome` is skipped, quiet, repeated, delivered, failed or woken."""

    agent: AgentId
    at: datetime
    wake: WakeReason
    outcome: str
    detail: str = ""
    digest: str = ""
    tokens: int = 0
    skip: SkipReason | None = None
    """Why it was skipped; not stored."""


class WakeLog:
    """The wakes of all agents of a home in the last 30 days."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def record(self, entry: WakeRecord) -> None:
        values = (
            entry.agent,
            format_moment(entry.at),
            entry.wake,
            entry.outcome,
            entry.detail,
            entry.digest,
            entry.tokens,
        )
        with self._database.change() as base:
            base.execute(_INSERT, values)
            base.execute("DELETE FROM heartbeats WHERE at < ?", (format_moment(self._clock.now() - KEPT),))

    def last(self, agent: AgentId) -> WakeRecord | None:
        """Return the latest heartbeat of an agent."""
        found = self._read("WHERE agent = ? AND outcome <> ? ORDER BY id DESC LIMIT 1", agent, WOKEN)
        return found[0] if found else None

    def last_run(self, agent: AgentId) -> WakeRecord | None:
        """Return the latest heartbeat of an agent that was not skipped."""
        found = self._read("WHERE agent = ? AND outcome NOT IN (?, 'skipped') ORDER BY id DESC LIMIT 1", agent, WOKEN)
        return found[0] if found else None

    def last_time(self, agent: AgentId) -> datetime | None:
        """Return the time from which the interval counts: the latest heartbeat, or when heartbeats were first served.

        It is on the disk, so that a gateway that restarts more often than the interval also runs heartbeats.
        """
        found = self.last(agent)
        if found is not None:
            return found.at
        rows = self._database.read("SELECT at FROM heartbeat_starts WHERE agent = ?", (agent,))
        return parse_moment(rows[0]["at"]) if rows else None

    def begin(self, agent: AgentId, at: datetime) -> None:
        """Record that the heartbeats of an agent are served from a time on, unless they were served before."""
        if self.last_time(agent) is None:
            with self._database.change() as base:
                base.execute(_BEGIN, (agent, format_moment(at)))

    def correct_times(self) -> None:
        """Replace times that are in the future, because the clock was ahead when they were written, by now."""
        now = format_moment(self._clock.now())
        tables = ("heartbeats", "heartbeat_starts")
        if any(self._database.read(f"SELECT 1 FROM {table} WHERE at > ? LIMIT 1", (now,)) for table in tables):  # noqa: S608 - the text is ours
            with self._database.change() as base:
                for table in tables:
                    base.execute(f"UPDATE {table} SET at = ? WHERE at > ?", (now, now))  # noqa: S608 - the text is ours

    def log(self, agent: AgentId | None, limit: int) -> Sequence[WakeRecord]:
        """Return the latest wakes, newest first."""
        if agent is None:
            return self._read("ORDER BY id DESC LIMIT ?", limit)
        return self._read("WHERE agent = ? ORDER BY id DESC LIMIT ?", agent, limit)

    def count_quiet(self, agent: AgentId, since: datetime | None) -> int:
        """Return how many of an agent's last heartbeats in a row had nothing to report, since a time if it is given."""
        most = QUIET_BEFORE_SLOWER * MAX_DOUBLINGS + 1
        rows = self._read(
            "WHERE agent = ? AND outcome NOT IN (?, 'skipped') ORDER BY id DESC LIMIT ?", agent, WOKEN, most
        )
        quiet = takewhile(lambda row: row.outcome == "quiet" and not row.detail, rows)
        return sum(since is None or row.at >= since for row in quiet)

    def delivered_texts(self, agent: AgentId) -> Sequence[DeliveredText]:
        """Return the recently delivered texts."""
        since = format_moment(self._clock.now() - REPEATS_WITHIN)
        entries = self._read("WHERE agent = ? AND outcome = 'delivered' AND at > ?", agent, since)
        return [DeliveredText(entry.digest, entry.at) for entry in entries]

    def _read(self, rest: str, *values: str | int) -> list[WakeRecord]:
        rows = self._database.read(f"SELECT * FROM heartbeats {rest}", values)  # noqa: S608 - the text is ours
        return [
            WakeRecord(
                AgentId(row["agent"]),
                parse_moment(row["at"]),
                WakeReason(row["wake"]),
                row["outcome"],
                row["detail"],
                row["digest"],
                row["tokens"],
            )
            for row in rows
        ]


def describe_wake(entry: WakeRecord) -> dict[str, Any]:
    """Return a wake as JSON data."""
    return {
        "agent": entry.agent,
        "at": entry.at.isoformat(),
        "wake": entry.wake.value,
        "outcome": entry.outcome,
        "detail": entry.detail,
        "tokens": entry.tokens,
    }


class PendingNote(Struct, frozen=True):
    """A note for the next heartbeat; `foreign` if it contains untrusted text."""

    id: int
    text: str
    foreign: bool


class PendingNoteStore:
    """The pending notes of all agents of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def put(self, agent: AgentId, text: str, *, foreign: bool, token: str | None = None) -> None:
        """Store a note for the agent's next heartbeat; a note with a known token is ignored."""
        now = self._clock.now()
        with self._database.change(durable=True) as base:
            base.execute(_PUT, (agent, format_moment(now), text, foreign, token))
            base.execute(_FORGET, (format_moment(now - KEPT),))

    def waiting(self, agent: AgentId) -> tuple[PendingNote, ...]:
        """Return the unread notes of an agent, oldest first."""
        rows = self._database.read(_WAITING, (agent,))
        return tuple(PendingNote(row["id"], row["text"], bool(row["foreign"])) for row in rows)

    def read(self, notes: Sequence[PendingNote]) -> None:
        """Mark notes as read."""
        now = format_moment(self._clock.now())
        with self._database.change(durable=True) as base:
            base.executemany(_READ, [(now, note.id) for note in notes])
