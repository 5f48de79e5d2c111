"""Sub-agents in a process without a gateway: a conversation in a terminal, or one manual command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus

from retinue.core.approval import Ask
from retinue.core.envelope import Outbound, Source
from retinue.core.events import TurnEvent, TurnFinished
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.subagents import ChildState, SubagentStore
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.subagents.runner import open_subagents

POLL_SECONDS = 0.05


class OnDemandSubagents:
    """The sub-agents of one session, opened when the first one is started.

    Sub-agents that have not ended when the process ends continue in the next one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        session: SessionKey,
        ask: Ask | None,
        tasks: TaskGroup,
        *,
        attends_wakes: bool = False,
    ) -> None:
        """Open the sub-agents; `attends_wakes` is true if nothing else in this process reads the dispatcher's wakes."""
        self.dispatcher = dispatcher
        self.session = session
        self.tasks = tasks
        self._ask = ask
        self._attends_wakes = attends_wakes
        self._lock = anyio.Lock()
        self._finished = anyio.Event()
        sessions = dispatcher.sessions
        self._inbox = sessions.services.inbox
        self._store = SubagentStore(sessions.services.database, sessions.home.clock)

    async def open(self) -> None:
        """Let the session start sub-agents, and continue those that a previous process left."""
        self.dispatcher.open_subagents = self._open_once
        if self._store.active(self.session):
            await self._open_once()

    async def _open_once(self) -> None:
        async with self._lock:
            if self.dispatcher.subagents is None:
                await self.tasks.start(self._serve)

    @property
    def at_work(self) -> int:
        """Return how many sub-agents of the session have not ended."""
        return sum(child.state is ChildState.RUNNING for child in self._store.active(self.session))

    @property
    def is_settled(self) -> bool:
        """Return whether every sub-agent has ended and the session has answered its result."""
        return not self._store.active(self.session) and not self._inbox.is_unfinished(self.session)

    async def settle(self) -> None:
        """Wait until all is settled; the time limits of the sub-agents bound that."""
        while not self.is_settled:  # noqa: ASYNC110 - another process may take part
            await anyio.sleep(POLL_SECONDS)

    def answers(self) -> tuple[Outbound, ...]:
        """Return the undelivered answers of the session to results."""
        found = self._inbox.undelivered(self.session)
        return tuple(item.outbound for item in found if item.inbound.source is Source.SUBAGENT)

    async def watch(self, show: Callable[[], Awaitable[None]]) -> None:
        """Call `show` whenever the session has answered a result, until cancelled."""
        while True:
            await self._finished.wait()
            self._finished = anyio.Event()
            while self._inbox.is_unfinished(self.session):  # noqa: ASYNC110 - another process may take part
                await anyio.sleep(POLL_SECONDS)
            await show()

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        async with (
            self.dispatcher.serving(self._publish, self._ask, attends_wakes=self._attends_wakes),
            open_subagents(self.dispatcher) as subagents,
        ):
            subagents.adopt(self.session)
            task_status.started()
            await anyio.sleep_forever()

    def _publish(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        if session == self.session and isinstance(event, TurnFinished):
            self._finished.set()


@asynccontextmanager
async def serve_unwatched(dispatcher: Dispatcher) -> AsyncIterator[Dispatcher]:
    """Serve work that a command starts, without clients and without approvals.

    At the end, this waits for the sub-agents that the work started and for the answers of their parents.
    """

    def publish(session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """No client watches."""

    async with dispatcher.serving(publish, None), open_subagents(dispatcher) as subagents:
        yield dispatcher
        await subagents.settle()
