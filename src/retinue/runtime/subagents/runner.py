"""Starting sub-agents, waiting for them, and notifying their parents; a new process continues where the last one ended.

A child is a message in a session of its own, so it is as durable as the inbox. Its result is stored in the registry,
and its parent is notified by a message under an idempotency key: once, no matter how often a process dies. The first
process that ends a child records that in the registry; the process that follows the child sees it there and stops its
turn.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import random_id, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, UsageError, run_logged
from retinue.core.events import Notice, TurnStatus
from retinue.core.keys import RunId, SessionKey, SessionKind
from retinue.core.messages import AssistantMessage, Usage
from retinue.dispatch.subagents import (
    Child,
    ChildState,
    SpawnFacts,
    SpawnOrder,
    SubagentStore,
    announce,
    compose_result,
    compose_task,
    depth_of,
    find_refusal,
    is_stale,
    key_for_child,
    skips_announcement,
    time_left,
)
from retinue.runtime.agents.policy import must_be_sandboxed
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.subagents.setup import SpawnRefused, prepare_child
from retinue.runtime.turns.sessions import Sessions
from retinue.sandbox.confinement import find_loosening
from retinue.security.untrusted_text import TextSource as ContentSource
from retinue.security.untrusted_text import wrap_untrusted
from retinue.sessions.tree import has_untrusted_content
from retinue.toolkit.sessions import CallingSession

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.5
"""How often the follower of a child checks it; another process may end it."""
STOP_SECONDS = 15.0
FIRST_PAUSE, MAX_PAUSE = 15.0, 300.0
STATES = {
    TurnStatus.OK: ChildState.DONE,
    TurnStatus.FAILED: ChildState.FAILED,
    TurnStatus.ABORTED: ChildState.CANCELLED,
}
LEFT_ALONE = "It was interrupted when its process ended, and no process continued it in time."
RESULT_RETENTION = timedelta(days=7)
"""How long a result waits for its parent."""
CHILD_RETENTION = timedelta(days=30)
"""How long a child stays in the registry after its session was archived."""
NO_AGENT = "Its agent is no longer in the configuration."

T = TypeVar("T")


class Spawned(Struct, frozen=True):
    """A started child, and notices for its parent."""

    child: Child
    notes: tuple[str, ...] = ()


class SubagentRunner(Struct, frozen=True):
    """The sub-agents of all sessions, in the process that serves them."""

    sessions: Sessions
    dispatcher: Dispatcher
    store: SubagentStore
    tasks: TaskGroup
    _followed: set[RunId] = field(default_factory=set)

    async def spawn(self, order: SpawnOrder, caller: CallingSession) -> Spawned:
        """Start a child and return at once; raise `SpawnRefused` if it may not be started.

        If the parent has read untrusted text, the child's task is untrusted too.
        """
        parent = caller.session
        refusal = find_refusal(order, self._facts(order, parent))
        if refusal is not None:
            raise SpawnRefused(refusal)
        agent = order.agent or parent.agent
        settings = self.sessions.home.config.agents.resolve(agent).subagents
        session = key_for_child(parent, agent, random_uuid())
        outfit = prepare_child(self.sessions, order, caller, session)
        default = timedelta(seconds=settings.run_timeout_seconds) if settings.run_timeout_seconds else None
        child = Child(
            run=RunId(random_uuid()),
            parent=parent,
            session=session,
            task=order.task,
            label=order.label,
            task_name=order.task_name,
            owner=caller.owner,
            asked_at=self.sessions.home.clock.now(),
            timeout=order.timeout or default,
            cleanup=order.cleanup,
            model=outfit.model,
            foreign=caller.tainted,
        )
        self.sessions.agent(agent).store.begin(child.session, outfit.bodies)
        self.store.add(child)
        self._follow(child)
        return Spawned(child, outfit.notes)

    def adopt(self, parent: SessionKey | None = None) -> int:
        """Resume children, or those of a session, that a previous process left; return how many.

        A child that was inactive for too long is ended. Their sessions must not be running yet.
        """
        self._drop_remains()
        left = self.store.active(parent)
        for child in left:
            why = self._find_obstacle(child) if child.ended_at is None else None
            if why is not None:
                self.sessions.services.inbox.abandon(child.session, why)
                child = self.store.end(child.run, ChildState.INTERRUPTED, replace(child, text=why))
            self._follow(child)
        return len(left)

    def cancel(self, child: Child, *, parent_knows: bool = False) -> bool:
        """End a child and its own children; return false if it had ended. `parent_knows`: no message to the parent."""
        stored = self.store.get(child.run)
        if stored.ended_at is not None:
            return False
        ended = replace(stored, text="It was cancelled.")
        self.store.end(stored.run, ChildState.CANCELLED, ended, parent_knows=parent_knows)
        self.dispatcher.stop(stored.session)
        return True

    def cancel_children(self, parent: SessionKey) -> int:
        """End all children of a session because it is stopped; return how many were running."""
        return sum(self.cancel(child, parent_knows=True) for child in self.store.active(parent))

    async def settle(self) -> None:
        """Wait until the children that this process follows have ended and their parents have answered."""
        parents: set[SessionKey] = set()
        while self._followed or any(map(self.sessions.services.inbox.is_unfinished, parents)):
            parents |= {self.store.get(run).parent for run in self._followed}
            await anyio.sleep(WATCH_SECONDS)

    async def steer(self, child: Child, text: str, *, foreign: bool = False) -> None:
        """Send a message to a running child."""
        if child.state is not ChildState.RUNNING:
            raise UsageError(f"The sub-agent {child.run} has ended ({child.state}); it cannot receive messages.")
        inbound = Inbound(text, child.session, source=Source.SUBAGENT, owner=child.owner, foreign=foreign)
        await self.dispatcher.submit(replace(inbound, model=child.model))

    def archive(self) -> int:
        """Archive the sessions of children that ended a while ago, and return how many; delete old children."""
        for child in self.store.expire(RESULT_RETENTION):
            log.warning("the result of the sub-agent %s was not read for %s", child.run, child.parent)
        self.store.forget(CHILD_RETENTION)
        settings = self.sessions.home.config.agents.defaults.subagents
        if not settings.archive_after_minutes:
            return 0
        due = self.store.to_archive(timedelta(minutes=settings.archive_after_minutes))
        for child in due:
            self._archive_session(child)
        return len(due)

    def transcript_of(self, child: Child) -> str:
        """Return the path of the child's transcript."""
        store = self.sessions.agent(child.session.agent).store
        session = store.find(child.session)
        return store.locate(session.id) if session else "(put away)"

    def _facts(self, order: SpawnOrder, parent: SessionKey) -> SpawnFacts:
        agents = self.sessions.home.config.agents
        settings = agents.resolve(parent.agent)
        target = order.agent or parent.agent
        theirs = agents.resolve(target) if target in agents.ids else settings
        children, unread = self.store.count(parent)
        names = frozenset(child.task_name for child in self.store.active(parent))
        return SpawnFacts(
            parent=parent,
            agents=agents.ids,
            allowed=settings.subagents.allow_agents,
            children=children,
            unread=unread,
            names=names,
            max_depth=settings.subagents.max_spawn_depth,
            max_children=settings.subagents.max_children_per_agent,
            must_name_agent=settings.subagents.require_agent_id,
            parent_confined=must_be_sandboxed(settings, parent),
            child_confined=must_be_sandboxed(theirs, key_for_child(parent, target, "new")),
            looser=find_loosening(settings.sandbox, theirs.sandbox),
        )

    def _drop_remains(self) -> None:
        """Drop the messages of children that were ended together with their process."""
        for session in self.sessions.services.inbox.unfinished():
            child = self.store.of_session(session) if session.kind is SessionKind.SUBAGENT else None
            if child is not None and child.ended_at is not None:
                self.sessions.services.inbox.abandon(session, child.text)

    def _find_obstacle(self, child: Child) -> str | None:
        """Return why a child of a previous process cannot be continued; None if it can."""
        if child.session.agent not in self.sessions.home.config.agents.ids:
            return NO_AGENT
        session = self.sessions.agent(child.session.agent).store.peek(child.session)
        last_sign = max(child.asked_at, session.updated_at) if session else child.asked_at
        if not is_stale(last_sign, self.sessions.home.clock.now()):
            return None
        lease = self.sessions.home.lease(child.session)
        is_alone = lease.try_acquire()
        lease.release()
        return LEFT_ALONE if is_alone else None

    def _follow(self, child: Child) -> None:
        if child.run not in self._followed:
            self._followed.add(child.run)
            self.tasks.start_soon(run_logged, f"the sub-agent {child.run}", self._follow_to_end, child)

    async def _follow_to_end(self, child: Child) -> None:
        """Wait for a child's end, store its result and notify its parent."""
        try:
            ended = child if child.ended_at else await self._persist(self._outcome, child)
            if ended.told_at is None:
                await self._persist(self._notify_parent, ended)
        finally:
            self._followed.discard(child.run)

    async def _persist(self, step: Callable[[Child], Awaitable[T]], child: Child) -> T:
        """Repeat a step until it succeeds, for errors of the disk or a full queue."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await step(child)
            except RetinueError as error:
                log.warning("the sub-agent %s has to wait for %g s: %s", child.run, pause, error)
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    async def _outcome(self, child: Child) -> Child:
        """Run the task of a child; return the child with its outcome."""
        stored = self.store.get(child.run)
        if stored.ended_at is not None:
            return stored
        inbound = Inbound(
            compose_task(child.task),
            child.session,
            source=Source.SUBAGENT,
            owner=child.owner,
            model=child.model,
            foreign=child.foreign,
        )
        accepted = await self.dispatcher.submit(inbound, f"spawn:{child.run}")
        timer = anyio.CancelScope()
        self.tasks.start_soon(run_logged, f"the clock of the sub-agent {child.run}", self._keep_time, child, timer)
        try:
            return await self._await_end(child, accepted.run)
        finally:
            timer.cancel()

    async def _await_end(self, child: Child, run: RunId) -> Child:
        while True:
            answer = await self.dispatcher.wait(run, WATCH_SECONDS)
            stored = self.store.get(child.run)
            if stored.ended_at is not None:
                return await self._stop(stored, run)
            if answer is not None:
                if not self._has_more_to_do(stored):
                    return self._conclude(stored, answer)
                await anyio.sleep(WATCH_SECONDS)

    def _has_more_to_do(self, child: Child) -> bool:
        """Return whether a child must wait for its own children or has messages to answer."""
        return bool(self.store.active(child.session)) or self.sessions.services.inbox.is_unfinished(child.session)

    async def _keep_time(self, child: Child, timer: anyio.CancelScope) -> None:
        with timer:
            await self._persist(self._time_out, child)

    async def _time_out(self, child: Child) -> None:
        """Record when a child's turn starts, and end it at its time limit."""
        await self.sessions.services.lanes.begun(child.session)
        stored = self.store.started(child.run)
        left = time_left(stored, self.sessions.home.clock.now())
        if left is None:
            return
        await anyio.sleep(left.total_seconds())
        limit = f"{(stored.timeout or left).total_seconds():g} s"
        if left:
            self.store.end(stored.run, ChildState.TIMED_OUT, replace(stored, text=f"It was stopped after {limit}."))
        else:
            why = f"Its {limit} ended while no process worked on it."
            self.store.end(stored.run, ChildState.INTERRUPTED, replace(stored, text=why))

    async def _stop(self, stored: Child, run: RunId) -> Child:
        """Stop the turn of a child that was ended, and store its work so far."""
        with anyio.move_on_after(STOP_SECONDS):
            while await self.dispatcher.wait(run, 0) is None:
                self.dispatcher.stop(stored.session)
                await self.dispatcher.wait(run, WATCH_SECONDS)
        words, usage, foreign = self._findings(stored)
        return self.store.describe_end(stored.run, compose_result(words, stored.text), usage, foreign=foreign)

    def _conclude(self, child: Child, answer: Outbound) -> Child:
        words, usage, foreign = self._findings(child)
        went_on = bool(self.store.of_parent(child.session)) or not answer.text
        text = compose_result(words if went_on and not answer.silent else answer.text, answer.error)
        state = ChildState.INTERRUPTED if answer.interrupted else STATES[answer.status]
        return self.store.end(child.run, state, replace(child, text=text, usage=usage, foreign=foreign))

    def _findings(self, child: Child) -> tuple[str, Usage, bool]:
        """Return the last answer of a child, its total usage, and whether it read untrusted text."""
        store = self.sessions.agent(child.session.agent).store
        session = store.peek(child.session)
        if session is None:
            return "", child.usage, child.foreign
        tree = store.open(child.session).tree
        spoken = (message.text for message in reversed(tree.messages) if isinstance(message, AssistantMessage))
        words = next((text for text in spoken if text.strip()), "")
        return words, session.usage, child.foreign or has_untrusted_content(tree)

    async def _notify_parent(self, child: Child) -> None:
        """Notify a parent of its child's result, unless the parent is gone."""
        if child.parent.agent not in self.sessions.home.config.agents.ids:
            log.warning("the result of the sub-agent %s waits: there is no agent %s", child.run, child.parent.agent)
            return
        if not (skips_announcement(child) or self._parent_is_over(child)):
            result = child.text
            if child.foreign:
                result = wrap_untrusted(result, ContentSource.SUBAGENT, new_id=random_id)
            text = announce(child, result, self.transcript_of(child))
            inbound = Inbound(text, child.parent, source=Source.SUBAGENT, owner=child.owner, foreign=child.foreign)
            accepted = await self.dispatcher.submit(inbound, f"announce:{child.run}")
            await self._await_reading(child, accepted.run)
        self.store.mark_notified(child.run)
        if child.cleanup == "delete":
            self._archive_session(child)

    def _parent_is_over(self, child: Child) -> bool:
        """Return whether the parent is a sub-agent that has ended."""
        parent = self.store.of_session(child.parent) if depth_of(child.parent) else None
        return parent is not None and parent.ended_at is not None

    async def _await_reading(self, child: Child, run: RunId) -> None:
        """Wait until a turn of the parent has taken a result; publish a notice if that takes long."""
        patience = self.sessions.home.config.agents.defaults.subagents.announce_timeout_ms / 1000
        with anyio.move_on_after(patience) as waited:
            await self._await_taking(run)
        if waited.cancelled_caught:
            notice = f"The sub-agent {child.name} has ended ({child.state}); its result waits to be read."
            log.warning("the result of the sub-agent %s has waited for %g s in %s", child.run, patience, child.parent)
            self.dispatcher.publish(child.parent, (run,), Notice(notice))
            await self._await_taking(run)

    async def _await_taking(self, run: RunId) -> None:
        while self.sessions.services.inbox.is_waiting(run):
            await self.dispatcher.wait(run, WATCH_SECONDS)

    def _archive_session(self, child: Child) -> None:
        store = self.sessions.agent(child.session.agent).store
        if store.find(child.session) is not None:
            store.delete(child.session)
        self.store.archived(child.run)


@asynccontextmanager
async def open_subagents(dispatcher: Dispatcher) -> AsyncIterator[SubagentRunner]:
    """Run sub-agents while the block runs; unfinished ones continue at the next start."""
    async with anyio.create_task_group() as tasks:
        sessions = dispatcher.sessions
        store = SubagentStore(sessions.services.database, sessions.home.clock)
        subagents = SubagentRunner(sessions, dispatcher, store, tasks)
        dispatcher.subagents = subagents
        try:
            yield subagents
        finally:
            dispatcher.subagents = None
            tasks.cancel_scope.cancel()
