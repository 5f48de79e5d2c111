"""Lanes: how many turns run concurrently in this process, and in which order.

A session runs one turn at a time, in the order of arrival. Sessions take turns, so that one with a long queue does not
block the others. Sub-agents have a separate limit, because a turn that waits for its sub-agent must not hold the slot
that the sub-agent needs. Among turns that are ready, that of the parent or client with the fewest running ones goes
first, so that one with many does not block another's. For the same reason the last slot goes to a client without one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from enum import StrEnum

import anyio
from msgspec import Struct, field

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey

MAX_WAITING_PER_SESSION = 100
MAX_WAITING = 1_000
MIN_TO_RESERVE = 4
"""From how many slots on the last one is reserved for a client that holds none."""


class LaneKind(StrEnum):
    """The limit that a turn counts against."""

    MAIN = "main"
    SUBAGENT = "subagent"


class LaneFull(RetinueError):
    """Too many turns wait; this one was refused and did not start."""


def default_concurrency(cpus: int | None) -> int:
    """Return the default number of concurrent turns: turns mostly wait for a model, so few processors allow many."""
    return min(16, max(8, cpus or 1))


class _Turn(Struct, eq=False):
    session: SessionKey
    kind: LaneKind
    parent: Hashable
    granted: anyio.Event = field(default_factory=anyio.Event)


class Lanes:
    """The lanes of one process."""

    def __init__(
        self,
        main: int,
        subagents: int = 8,
        *,
        max_per_session: int = MAX_WAITING_PER_SESSION,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.max_running = main
        self._free = {LaneKind.MAIN: main, LaneKind.SUBAGENT: subagents}
        self._reserved = {LaneKind.MAIN: int(main >= MIN_TO_RESERVE), LaneKind.SUBAGENT: 0}
        self._max_per_session = max_per_session
        self._max_waiting = max_waiting
        self._lines: dict[SessionKey, deque[_Turn]] = {}
        self._running: set[SessionKey] = set()
        self._held: Counter[Hashable] = Counter()
        """How many slots the turns of each parent hold."""
        self._awaited: list[tuple[SessionKey, anyio.Event]] = []
        self._next: deque[SessionKey] = deque()
        """Sessions with waiting turns and no running one, in the order in which they may start."""

    @property
    def running(self) -> int:
        """Return how many turns run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Return how many turns wait."""
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def enter(
        self, session: SessionKey, kind: LaneKind = LaneKind.MAIN, parent: Hashable = None
    ) -> AsyncIterator[None]:
        """Wait for a slot and hold it; raise `LaneFull` at once if too many turns wait.

        Turns of one `parent`, which may be a client, share the slots with those of other parents. A turn must not enter
        the lane of its own session again: it would wait for itself.
        """
        turn = self._line_up(_Turn(session, kind, session if parent is None else parent))
        try:
            await turn.granted.wait()
            yield
        finally:
            self._leave(turn)

    async def begun(self, session: SessionKey) -> None:
        """Wait until a turn of a session has its slot."""
        if session in self._running:
            return
        awaited = (session, anyio.Event())
        self._awaited.append(awaited)
        try:
            await awaited[1].wait()
        finally:
            self._awaited.remove(awaited)

    def _line_up(self, turn: _Turn) -> _Turn:
        session = turn.session
        line = self._lines.setdefault(session, deque())
        line.append(turn)
        if session not in self._running and session not in self._next:
            self._next.append(session)
        self._start_what_fits()
        if not turn.granted.is_set() and (len(line) > self._max_per_session or self.waiting > self._max_waiting):
            self._leave(turn)
            raise LaneFull(f"Too many turns wait in this process, {len(line)} of them in '{session}'. Try again later.")
        return turn

    def _leave(self, turn: _Turn) -> None:
        """Release the slot, or the position in the queue."""
        if turn.granted.is_set():
            self._free[turn.kind] += 1
            self._running.remove(turn.session)
            self._held[turn.parent] -= 1
            self._held += Counter()  # Removes parents without slots.
            if turn.session in self._lines:
                self._next.append(turn.session)
        else:
            self._lines[turn.session].remove(turn)
            self._forget_empty_line(turn.session)
        self._start_what_fits()

    def _start_what_fits(self) -> None:
        while (session := self._choose()) is not None:
            self._next.remove(session)
            turn = self._lines[session].popleft()
            self._forget_empty_line(session)
            self._free[turn.kind] -= 1
            self._held[turn.parent] += 1
            self._running.add(session)
            turn.granted.set()
            for awaited, event in self._awaited:
                if awaited == session:
                    event.set()

    def _choose(self) -> SessionKey | None:
        """Return the session that starts next: the first with a free slot whose parent holds the fewest."""
        heads = [self._lines[session][0] for session in self._next]
        chosen = min(filter(self._may_start, heads), key=lambda turn: self._held[turn.parent], default=None)
        return chosen.session if chosen else None

    def _may_start(self, turn: _Turn) -> bool:
        return self._free[turn.kind] > (self._reserved[turn.kind] if self._held[turn.parent] else 0)

    def _forget_empty_line(self, session: SessionKey) -> None:
        if not self._lines[session]:
            del self._lines[session]
            if session in self._next:
                self._next.remove(session)
