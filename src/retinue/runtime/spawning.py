"""Starting sub-agents, waiting for them, and telling their parents; a restart goes on where the last process ended.

A child is a message in a session of its own, so it survives whatever the inbox survives. Its result is kept in the
registry, and its parent is told by a message under a key of its own: once, however often a process dies on the way.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import anyio
from anyio.abc import TaskGroup

from retinue.core.background import run_logged
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, StorageError, UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage
from retinue.core.model import Thought
from retinue.dispatch.childbook import ChildBook
from retinue.dispatch.subagents import (
    Child,
    ChildState,
    SpawnFacts,
    SpawnOrder,
    announce,
    compose_task,
    find_refusal,
    key_for_child,
)
from retinue.runtime.policy import is_sandboxed
from retinue.runtime.runtime import Runtime
from retinue.runtime.switchboard import Switchboard
from retinue.sessions.entries import Body, Entry, MessageAdded, ThinkingChanged

log = logging.getLogger(__name__)

PATIENCE = 3_600.0
RETRY_SECONDS = 15.0
STATES = {
    TurnStatus.OK: ChildState.DONE,
    TurnStatus.FAILED: ChildState.FAILED,
    TurnStatus.ABORTED: ChildState.CANCELLED,
}


class SpawnRefused(UsageError):
    """A sub-agent was not started; the message says why."""


@dataclass(frozen=True, slots=True)
class Spawner:
    """The sub-agents of all sessions, in the process that serves them."""

    runtime: Runtime
    switchboard: Switchboard
    book: ChildBook
    tasks: TaskGroup

    async def spawn(self, order: SpawnOrder, parent: SessionKey, *, owner: bool) -> Child:
        """Start a child; raises `SpawnRefused` where it may not be. Returns at once."""
        refusal = find_refusal(order, self._facts(order, parent))
        if refusal is not None:
            raise SpawnRefused(refusal)
        agent = order.agent or parent.agent
        settings = self.runtime.foundation.config.agents.resolve(agent).subagents
        run = RunId(random_uuid())
        session = key_for_child(parent, agent, random_uuid())
        default = timedelta(seconds=settings.run_timeout_seconds) if settings.run_timeout_seconds else None
        child = Child(
            run=run,
            parent=parent,
            session=session,
            task=order.task,
            label=order.label,
            owner=owner,
            asked_at=self.runtime.foundation.clock.now(),
            timeout=order.timeout or default,
            cleanup=order.cleanup,
            model=order.model or (settings.model.primary if settings.model else None),
        )
        self._prepare(child, order, settings.thinking)
        self.book.add(child)
        self.tasks.start_soon(run_logged, f"the sub-agent {child.run}", self._see_through, child)
        return child

    def adopt(self) -> int:
        """Take up the children that a process before this one left; returns how many."""
        left = self.book.active()
        for child in left:
            self.tasks.start_soon(run_logged, f"the sub-agent {child.run}", self._see_through, child)
        return len(left)

    def cancel(self, child: Child) -> bool:
        """End a child and its own children; false where it had ended."""
        ended = self.book.end(child.run, ChildState.CANCELLED, replace(child, text="It was cancelled."))
        self.runtime.conversation(child.session).ask_to_stop()
        return ended.state is ChildState.CANCELLED

    def cancel_children(self, parent: SessionKey) -> int:
        """End all children of a session; returns how many were at work."""
        at_work = [child for child in self.book.of_parent(parent) if child.state is ChildState.RUNNING]
        for child in at_work:
            self.cancel(child)
        return len(at_work)

    async def steer(self, child: Child, text: str) -> None:
        """Say something to a child that is at work."""
        if child.state is not ChildState.RUNNING:
            raise UsageError(f"The sub-agent {child.run} has ended ({child.state}); it hears nothing any more.")
        await self.switchboard.submit(Inbound(text, child.session, source=Source.SUBAGENT, owner=child.owner))

    def archive(self) -> int:
        """Put away the sessions of children that ended a while ago; returns how many."""
        settings = self.runtime.foundation.config.agents.defaults.subagents
        if not settings.archive_after_minutes:
            return 0
        due = self.book.to_archive(timedelta(minutes=settings.archive_after_minutes))
        for child in due:
            self._put_away(child)
        return len(due)

    def transcript_of(self, child: Child) -> str:
        """Where the child's transcript is."""
        store = self.runtime.agent(child.session.agent).store
        session = store.find(child.session)
        return str(store.path_of(session.id)) if session else "(put away)"

    def _facts(self, order: SpawnOrder, parent: SessionKey) -> SpawnFacts:
        agents = self.runtime.foundation.config.agents
        settings = agents.resolve(parent.agent)
        target = order.agent or parent.agent
        mine = self.book.of_parent(parent)
        key = key_for_child(parent, target, "new")
        return SpawnFacts(
            parent=parent,
            agents=agents.ids,
            allowed=settings.subagents.allow_agents,
            children=sum(child.state is ChildState.RUNNING for child in mine),
            untold=sum(child.ended_at is not None and child.told_at is None for child in mine),
            deepest=settings.subagents.max_spawn_depth,
            most_children=settings.subagents.max_children_per_agent,
            must_name_agent=settings.subagents.require_agent_id,
            parent_confined=is_sandboxed(settings, parent),
            child_confined=target in agents.ids and is_sandboxed(agents.resolve(target), key),
        )

    def _prepare(self, child: Child, order: SpawnOrder, thinking: str | None) -> None:
        """Begin the child's session: empty, or with what the parent has heard so far."""
        bodies: list[Body] = []
        if order.context == "fork":
            path = self.runtime.agent(child.parent.agent).store.open(child.parent).tree.path
            bodies += _without_open_calls(path)
        level = order.thinking or thinking
        if level is not None:
            if level not in tuple(Thought):
                raise SpawnRefused(f"'{level}' is none of: {', '.join(Thought)}.")
            bodies.append(ThinkingChanged(Thought(level)))
        self.runtime.agent(child.session.agent).store.begin(child.session, bodies)

    async def _see_through(self, child: Child) -> None:
        """Wait for a child's end, keep its result and tell its parent; what fails for want of a disk is tried again."""
        while True:
            try:
                ended = child if child.ended_at else await self._outcome(child)
                if ended.told_at is None:
                    await self._tell(ended)
                return
            except StorageError as error:
                log.warning("the sub-agent %s cannot be settled yet: %s", child.run, error)
                await anyio.sleep(RETRY_SECONDS)
            except RetinueError as error:
                log.warning("the sub-agent %s failed: %s", child.run, error)
                child = self.book.end(child.run, ChildState.FAILED, replace(child, text=str(error)))

    async def _outcome(self, child: Child) -> Child:
        order = SpawnOrder(child.task)
        inbound = Inbound(
            compose_task(order), child.session, source=Source.SUBAGENT, owner=child.owner, model=child.model
        )
        accepted = await self.switchboard.submit(inbound, f"spawn:{child.run}")
        answer = await self._wait(accepted.run, child)
        if answer is None:
            self.runtime.conversation(child.session).ask_to_stop()
            left = await self.switchboard.wait(accepted.run, RETRY_SECONDS)
            text = left.text if left else ""
            seconds = child.timeout.total_seconds() if child.timeout else 0
            told = f"{text}\n\n(It was stopped after {seconds:g} s.)".strip()
            usage = left.usage if left else child.usage
            return self.book.end(child.run, ChildState.TIMED_OUT, replace(child, text=told, usage=usage))
        text = answer.text or answer.error or ""
        return self.book.end(child.run, STATES[answer.status], replace(child, text=text, usage=answer.usage))

    async def _wait(self, run: RunId, child: Child) -> Outbound | None:
        if child.timeout is not None:
            spent = self.runtime.foundation.clock.now() - child.asked_at
            return await self.switchboard.wait(run, max(0.0, (child.timeout - spent).total_seconds()))
        while (answer := await self.switchboard.wait(run, PATIENCE)) is None:
            pass
        return answer

    async def _tell(self, child: Child) -> None:
        text = announce(child, self.transcript_of(child))
        told = Inbound(text, child.parent, source=Source.SUBAGENT, owner=child.owner)
        await self.switchboard.submit(told, f"announce:{child.run}")
        self.book.told(child.run)
        if child.cleanup == "delete":
            self._put_away(child)

    def _put_away(self, child: Child) -> None:
        store = self.runtime.agent(child.session.agent).store
        if store.find(child.session) is not None:
            store.delete(child.session)
        self.book.archived(child.run)


def _without_open_calls(path: Iterable[Entry]) -> list[Body]:
    """The messages of a conversation, without a last answer whose calls have no results yet."""
    bodies: list[Body] = [entry.body for entry in path if isinstance(entry.body, MessageAdded)]
    while bodies:
        last = bodies[-1]
        assert isinstance(last, MessageAdded)
        if not (isinstance(last.message, AssistantMessage) and last.message.calls):
            return bodies
        bodies.pop()
    return bodies


@asynccontextmanager
async def open_spawner(runtime: Runtime, switchboard: Switchboard) -> AsyncIterator[Spawner]:
    """What starts sub-agents while the block runs; the children go on at the next start."""
    async with anyio.create_task_group() as tasks:
        book = ChildBook(runtime.database, runtime.foundation.clock)
        spawner = Spawner(runtime, switchboard, book, tasks)
        runtime.spawner = spawner
        try:
            yield spawner
        finally:
            runtime.spawner = None
            tasks.cancel_scope.cancel()
