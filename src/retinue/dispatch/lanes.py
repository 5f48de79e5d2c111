"""Lanes: how many turns run at once in this process, and in which order.

A session runs one turn at a time, in the order of arrival. Sessions take turns: one with a long line does not keep the
others waiting. Sub-agents have a limit of their own, because a turn that waits for its sub-agent must not hold the
place that the sub-agent needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey

MOST_WAITING_PER_SESSION = 100
MOST_WAITING = 1_000


class LaneKind(StrEnum):
    """Which limit a turn counts against."""

    MAIN = "main"
    SUBAGENT = "subagent"


class LaneFull(RetinueError):
    """Too many turns wait; this one was refused and did not begin."""


def default_concurrency(cpus: int | None) -> int:
    """How many turns run at once unless configured: turns mostly wait for a model, so few processors allow many."""
    return min(16, max(8, cpus or 1))


@dataclass(eq=False, slots=True)
class _Turn:
    session: SessionKey
    kind: LaneKind
    granted: anyio.Event = field(default_factory=anyio.Event)


class Lanes:
    """The lanes of one process."""

    def __init__(
        self,
        main: int,
        subagents: int = 8,
        *,
        most_per_session: int = MOST_WAITING_PER_SESSION,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.most = main
        self._free = {LaneKind.MAIN: main, LaneKind.SUBAGENT: subagents}
        self._most_per_session = most_per_session
        self._most_waiting = most_waiting
        self._lines: dict[SessionKey, deque[_Turn]] = {}
        self._running: set[SessionKey] = set()
        self._next: deque[SessionKey] = deque()
        """Sessions that have a line and run nothing, in the order in which they may begin."""

    @property
    def running(self) -> int:
        """How many turns run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many turns wait."""
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def enter(self, session: SessionKey, kind: LaneKind = LaneKind.MAIN) -> AsyncIterator[None]:
        """Wait for a place and hold it; raises `LaneFull` at once where too many wait.

        A turn must not enter its own session's lane again: it would wait for itself.
        """
        turn = self._line_up(session, kind)
        try:
            await turn.granted.wait()
            yield
        finally:
            self._leave(turn)

    def _line_up(self, session: SessionKey, kind: LaneKind) -> _Turn:
        turn = _Turn(session, kind)
        line = self._lines.setdefault(session, deque())
        line.append(turn)
        if session not in self._running and session not in self._next:
            self._next.append(session)
        self._start_what_fits()
        if not turn.granted.is_set() and (len(line) > self._most_per_session or self.waiting > self._most_waiting):
            self._leave(turn)
            raise LaneFull(f"Too many turns wait in this process, {len(line)} of them in '{session}'. Try again later.")
        return turn

    def _leave(self, turn: _Turn) -> None:
        """Give back the place, or the place in the line."""
        if turn.granted.is_set():
            self._free[turn.kind] += 1
            self._running.remove(turn.session)
            if turn.session in self._lines:
                self._next.append(turn.session)
        else:
            self._lines[turn.session].remove(turn)
            self._forget_empty_line(turn.session)
        self._start_what_fits()

    def _start_what_fits(self) -> None:
        for session in list(self._next):
            head = self._lines[session][0]
            if self._free[head.kind] > 0:
                self._next.remove(session)
                self._lines[session].popleft()
                self._forget_empty_line(session)
                self._free[head.kind] -= 1
                self._running.add(session)
                head.granted.set()

    def _forget_empty_line(self, session: SessionKey) -> None:
        if not self._lines[session]:
            del self._lines[session]
            if session in self._next:
                self._next.remove(session)
