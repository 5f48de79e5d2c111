"""Sub-agents of a process that serves nobody else: one that holds a conversation, or does one piece of work by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct, field

from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.envelope import Outbound, Source
from retinue.core.events import TurnEvent, TurnFinished
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.childbook import ChildBook
from retinue.dispatch.subagents import ChildState
from retinue.runtime.runtime import Runtime

if TYPE_CHECKING:
    from retinue.runtime.switchboard import Switchboard

POLL_SECONDS = 0.05


class Household(Struct):
    """A conversation and those who work for it, opened when the first of them is asked for.

    What has not ended with the process goes on with the next one.
    """

    runtime: Runtime
    session: SessionKey
    ask: Ask
    tasks: TaskGroup
    attends_wakes: bool = False
    """Whether the conversation also hears here what happens by itself, because nobody else in the process tells it."""
    _door: anyio.Lock = field(default_factory=anyio.Lock)
    _heard: anyio.Event = field(default_factory=anyio.Event)

    async def open(self) -> None:
        """Let the conversation start sub-agents, and go on with those that an earlier process left."""
        self.runtime.engage = self.engage
        if self._book.active(self.session):
            await self.engage()

    async def engage(self) -> None:
        """Open what sub-agents need, once."""
        async with self._door:
            if self.runtime.spawner is None:
                await self.tasks.start(self._serve)

    @property
    def at_work(self) -> int:
        """How many sub-agents of the conversation have not ended."""
        return sum(child.state is ChildState.RUNNING for child in self._book.active(self.session))

    @property
    def is_settled(self) -> bool:
        """Whether every sub-agent has ended and the conversation has answered to what came of it."""
        return not self._book.active(self.session) and not self.runtime.inbox.is_unfinished(self.session)

    async def settle(self) -> None:
        """Wait until there is nothing more to hear; the time limits of the sub-agents bound that."""
        while not self.is_settled:  # noqa: ASYNC110 - another process may take part
            await anyio.sleep(POLL_SECONDS)

    def answers(self) -> tuple[Outbound, ...]:
        """What the conversation said about results, and nobody has seen yet."""
        found = self.runtime.inbox.undelivered(self.session)
        return tuple(item.outbound for item in found if item.inbound.source is Source.SUBAGENT)

    async def watch(self, show: Callable[[], Awaitable[None]]) -> None:
        """Call `show` whenever the conversation has answered something by itself, until cancelled."""
        while True:
            await self._heard.wait()
            self._heard = anyio.Event()
            while self.runtime.inbox.is_unfinished(self.session):  # noqa: ASYNC110 - another process may take part
                await anyio.sleep(POLL_SECONDS)
            await show()

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        from retinue.runtime.spawning import open_spawner
        from retinue.runtime.switchboard import open_switchboard

        async with (
            open_switchboard(self.runtime, self._hear, self.ask, attends_wakes=self.attends_wakes) as switchboard,
            open_spawner(self.runtime, switchboard) as spawner,
        ):
            spawner.adopt(self.session)
            task_status.started()
            await anyio.sleep_forever()

    def _hear(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        if session == self.session and isinstance(event, TurnFinished):
            self._heard.set()

    @property
    def _book(self) -> ChildBook:
        return ChildBook(self.runtime.database, self.runtime.foundation.clock)


@asynccontextmanager
async def open_private_switchboard(runtime: Runtime) -> AsyncIterator[Switchboard]:
    """A switchboard that nobody watches and that can ask nobody, for work that a command starts by hand.

    Sub-agents that the work starts are waited for, and so is what its session says to their results.
    """
    from retinue.runtime.spawning import open_spawner
    from retinue.runtime.switchboard import open_switchboard

    def publish(session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Nobody watches."""

    async with (
        open_switchboard(runtime, publish, nobody_to_ask) as switchboard,
        open_spawner(runtime, switchboard) as spawner,
    ):
        yield switchboard
        await spawner.settle()
