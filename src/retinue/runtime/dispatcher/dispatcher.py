"""The dispatcher: messages are accepted durably, and one task per session answers them in order.

The command line and the gateway use the same class. Its tasks belong to it and not to the sender of a message: a client
that disconnects stops nothing. One process at a time holds the lease of a session and answers the messages that wait
there, independent of the process that accepted them. A process that does not get the lease waits for the answer of the
holder, and takes over if the holder dies. Messages without an answer when the process ends are in the inbox, where the
next process finds them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import coroutine
from typing import Any, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from retinue.automation.heartbeat import WOKEN, WakeLog, WakeReason, WakeRecord
from retinue.core.approval import Ask
from retinue.core.clock import derived_uuid, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source, check_message_size
from retinue.core.errors import RetinueError, first_cause
from retinue.core.events import Accepted, Emit, Notice, TurnEvent
from retinue.core.fence import Lease
from retinue.core.keys import AgentId, RunId, SessionKey, SessionKind
from retinue.dispatch.admission import GroupContext
from retinue.dispatch.commands.command import apply_triggers
from retinue.dispatch.inbox import Acceptance, UnknownRun, Waiting
from retinue.dispatch.shares import CONNECTION_LEVELS, FairSlots, Share, StepQueue, current_share, enter_share
from retinue.runtime.dispatcher.commands import CommandRunner, DispatcherClosed, Publish, RunCommand
from retinue.runtime.dispatcher.serving import SessionServer, TurnAudience
from retinue.runtime.memory.pool import has_notes
from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_SECONDS = 0.05
TEAM_POLL_SECONDS = 0.25
"""How often the database of a team is asked whether another process has answered; many wait for it."""
MAX_PAUSE = 30.0
MAX_SESSIONS = 5_000
"""How many sessions may have messages to answer at one time; the inbox limits the messages of each."""
SPARE_PLACES = 16
"""How many turns may be prepared besides those that run, so that a free lane never waits for a plan."""
MAX_WAKE_CHARS = 200

_WAKES: Mapping[Source, WakeReason] = {
    Source.BACKGROUND: WakeReason.COMMAND,
    Source.CRON: WakeReason.CRON,
    Source.HOOK: WakeReason.HOOK,
    Source.BOOT: WakeReason.BOOT,
    Source.SUBAGENT: WakeReason.SUBAGENT,
}


class TooBusy(RetinueError):
    """Too many sessions wait; the message was not accepted."""


class SubagentControl(Protocol):
    """The interface of sub-agents for the dispatcher; their implementation is a layer above it."""

    def cancel_children(self, parent: SessionKey) -> int:
        """Cancel the sub-agents of a session; return how many were running."""
        ...


async def run_in_steps(steps: StepQueue, share: Share, make_work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run work like `await make_work()`, except that each of its steps waits for the turn of its share."""
    with enter_share(share), steps.task(share):
        return await _step_through(make_work(), steps, share)


@coroutine
def _step_through(work: Coroutine[Any, Any, T], steps: StepQueue, share: Share) -> Generator[Any, None, T]:
    """Resume a coroutine, step by step; a cancellation is passed on at once."""
    error: BaseException | None = None
    while True:
        if error is None and not steps.try_begin(share):
            try:
                yield from steps.line_up(share)
            except BaseException as cancelled:  # noqa: BLE001 - the work handles it
                error = cancelled
        began = time.monotonic()
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.end(share, time.monotonic() - began)
        error = None
        try:
            yield awaited
        except BaseException as thrown:  # noqa: BLE001 - the work handles it
            error = thrown


class _Pending:
    """A message that callers of this process wait for; `audience` is set if one of them shows the turn."""

    def __init__(self, session: SessionKey) -> None:
        self.session = session
        self.audience: TurnAudience | None = None
        self.waiters = 0
        self.changed = anyio.Event()
        self.outcome: Outbound | None = None
        self.error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self.outcome is None and self.error is None

    def notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()


def _publish_nothing(session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
    """The `Publish` of a process without clients."""


class Dispatcher:
    """Accepts messages and answers each exactly once.

    A process answers only the sessions that its own callers wait for. While it is `serving` it answers everything.
    """

    subagents: SubagentControl | None = None
    """Starts and stops sub-agents; set when they are opened in this process."""
    open_subagents: Callable[[], Awaitable[object]] | None = None
    """Opens sub-agents when the first one is started, in a process that does so on demand."""

    def __init__(self, sessions: Sessions, run_command: RunCommand, tasks: TaskGroup) -> None:
        self.sessions = sessions
        self.group_context = GroupContext()
        self._wake_sender, self.wakes = anyio.create_memory_object_stream[Waiting](math.inf)
        self._commands = CommandRunner(sessions, run_command, tasks, self._notify, self.publish)
        self._tasks = tasks
        self._places = FairSlots(sessions.services.lanes.max_running + SPARE_PLACES)
        self.steps = StepQueue()
        self._publish: Publish = _publish_nothing
        self._ask: Ask | None = None
        self._is_serving = False
        self._is_closing = False
        self.runs_turns = True
        """Whether this process answers messages, or other processes of its team do."""
        self._driving: dict[SessionKey, anyio.CancelScope] = {}
        self._pending: dict[RunId, _Pending] = {}
        self._followed: set[AgentId] = set()

    # Accepting

    async def submit(self, inbound: Inbound, idempotency: str | None = None) -> Acceptance:
        """Accept a message and have it answered; a slash command is run before this returns.

        The same idempotency key returns the first acknowledgement and does nothing. It determines the run, so that the
        transcript identifies the message even if the database lost it in a power failure. A secret goes into the run's
        id, because keys can be guessed.
        """
        run = RunId(random_uuid() if idempotency is None else self._derive_run(idempotency))
        accepted = await self._accept(inbound, run, idempotency)
        if not accepted.duplicate and self._commands.answer(accepted.run) is None:
            self.wake(inbound.session)
        return accepted

    async def say(self, inbound: Inbound, show: Emit, ask: Ask | None = None) -> Outbound:
        """Accept a message and wait for its answer; `show` gets the events of its turn, `ask` its approval requests.

        Raises the error that prevents this process from answering; the message then waits in the inbox.
        """
        run = RunId(random_uuid())
        with self._awaiting(run, inbound.session, TurnAudience(show, ask)) as pending:
            accepted = await self._accept(inbound, run, None)
            if (answer := self._commands.answer(run)) is not None:
                return answer
            await show(Accepted(run, inbound.session, accepted.accepted_at))
            return await self._await_outcome(run, pending)

    async def answer(self, waiting: Waiting, show: Emit, ask: Ask | None = None) -> Outbound | None:
        """Wait for the answer to a message that was accepted before; None if it was delivered with another one."""
        inbox = self.sessions.services.inbox
        outcome = inbox.outcome(waiting.run)
        if outcome is not None:
            return outcome if inbox.delivered(waiting.run) else None
        with self._awaiting(waiting.run, waiting.inbound.session, TurnAudience(show, ask)) as pending:
            return await self._await_outcome(waiting.run, pending)

    async def wait(self, run: RunId, seconds: float) -> Outbound | None:
        """Return the outcome of a message; None if it has none in time. Raise `UnknownRun` if it does not exist."""
        if (answer := self._commands.answer(run)) is not None:
            return answer
        session, outcome = self.sessions.services.inbox.progress(run)
        if outcome is not None or seconds <= 0:
            return outcome
        with self._awaiting(run, session) as pending, anyio.move_on_after(seconds):
            return await self._await_outcome(run, pending)
        return None

    def _derive_run(self, idempotency: str) -> str:
        return derived_uuid(f"{self.sessions.home.run_secret}:{idempotency}")

    async def _accept(self, inbound: Inbound, run: RunId, idempotency: str | None) -> Acceptance:
        check_message_size(inbound.text)
        if self._is_closing:
            raise DispatcherClosed("The gateway is shutting down and accepts no messages. Try again in a moment.")
        if (known := self._commands.accepted(idempotency)) is not None:
            return replace(known, duplicate=True)
        if len(self._driving) >= MAX_SESSIONS and inbound.session not in self._driving:
            raise TooBusy(f"{MAX_SESSIONS} sessions are already waiting for answers. Try again later.")
        config = self.sessions.home.config
        inbound = apply_triggers(inbound, config.session.reset_triggers, bash=config.commands.bash)
        if inbound.text.lstrip().startswith("/"):
            done = await self._commands.run(inbound, run, idempotency)
            if isinstance(done, Acceptance):
                return done
            inbound = done
        accepted = self.sessions.services.inbox.accept(inbound, run, idempotency)
        if not accepted.duplicate:
            self._record_wake(inbound)
        return accepted

    async def _notify(self, session: SessionKey, run: RunId, text: str) -> None:
        """Show a text to the clients of a session and to the caller of a message."""
        audience = await self._find_audience(session, (run,), "")
        await audience.show(Notice(text))

    # Waiting

    @contextmanager
    def _awaiting(self, run: RunId, session: SessionKey, audience: TurnAudience | None = None) -> Iterator[_Pending]:
        pending = self._pending.setdefault(run, _Pending(session))
        pending.audience = audience or pending.audience
        pending.waiters += 1
        try:
            yield pending
        finally:
            pending.waiters -= 1
            if not pending.waiters:
                del self._pending[run]
            scope = self._driving.get(session)
            if pending.is_open and scope is not None and not self._is_serving and not self._open_runs(session):
                scope.cancel()  # The only caller was cancelled, and with it the turn: the next process resumes it.

    async def _await_outcome(self, run: RunId, pending: _Pending) -> Outbound:
        """Wait until a message is settled; the task of its session passes the outcome in memory."""
        while pending.is_open:
            changed = pending.changed
            self.wake(pending.session)
            await changed.wait()
            if pending.is_open:
                pending.outcome = self.sessions.services.inbox.outcome(run)
        if pending.outcome is not None:
            return pending.outcome
        assert pending.error is not None
        raise pending.error

    def _settle(self, outcomes: Mapping[RunId, Outbound]) -> None:
        for run, outbound in outcomes.items():
            pending = self._pending.get(run)
            if pending is not None:
                pending.outcome = outbound
                pending.notify()

    def _open_runs(self, session: SessionKey) -> list[tuple[RunId, _Pending]]:
        return [(run, each) for run, each in self._pending.items() if each.session == session and each.is_open]

    def _callers(self, session: SessionKey) -> list[_Pending]:
        return [pending for _, pending in self._open_runs(session) if pending.audience is not None]

    # Serving

    @property
    def ask(self) -> Ask | None:
        """Answers the approval requests of turns that no caller waits for."""
        return self._ask

    @property
    def active(self) -> int:
        """Return how many sessions have messages to answer."""
        return len(self._driving)

    @property
    def active_sessions(self) -> tuple[SessionKey, ...]:
        """Return the sessions in which this process answers messages."""
        return tuple(filter(self.is_active, self._driving))

    def is_active(self, session: SessionKey) -> bool:
        """Return whether this process answers messages in a session."""
        return session in self._driving and self.sessions.services.inbox.is_unfinished(session)

    def publish(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Publish an event of a session to the clients that watch it."""
        self._publish(session, runs, event)

    @asynccontextmanager
    async def serving(
        self, publish: Publish, ask: Ask | None, *, attends_wakes: bool = True
    ) -> AsyncIterator[Dispatcher]:
        """Answer everything that is accepted in any session while the block runs.

        Turns that run at the end of the block are cancelled, and the next process resumes them. `attends_wakes` is
        false if the caller handles `wakes`.
        """
        before = self._tasks, self._publish, self._ask, self._is_serving
        async with anyio.create_task_group() as tasks:
            self._tasks, self._publish, self._ask, self._is_serving = tasks, publish, ask, True
            if attends_wakes:
                tasks.start_soon(self._attend_wakes)
            try:
                yield self
            finally:
                self._tasks, self._publish, self._ask, self._is_serving = before
                tasks.cancel_scope.cancel()

    def resume(self) -> int:
        """Serve messages that previous processes left unanswered; return in how many sessions."""
        left = self.sessions.services.inbox.unfinished()
        for session in left:
            self.wake(session)
        return len(left)

    def take_over(self, session: SessionKey) -> None:
        """Serve a session if no other process does."""
        if session in self._driving or self._is_closing:
            return
        lease = self.sessions.home.lease(session)
        if lease.try_acquire():
            lease.release()
            self.wake(session)

    async def drain(self, seconds: float) -> bool:
        """Start nothing more and wait for running turns and commands; return false if some run after that time."""
        self._is_closing = True
        with anyio.move_on_after(seconds):
            while self._driving or self._commands.are_running:  # noqa: ASYNC110 - sessions end one by one
                await anyio.sleep(POLL_SECONDS / 5)
        return not self._driving and not self._commands.are_running

    def stop(self, session: SessionKey) -> bool:
        """Stop the running turn of a session in any process, and its sub-agents; return false if nothing ran."""
        children = self.subagents.cancel_children(session) if self.subagents is not None else 0
        runner = self.sessions.runner(session)
        return runner.stop() or self.sessions.home.lease(session).ask_to_stop() or children > 0

    def announce(self, inbound: Inbound) -> None:
        """Accept a message that no person sent, such as the end of a background command.

        A running turn takes it if the queue mode allows it. Otherwise the reader of `wakes` has it answered.
        """
        accepted = self.sessions.services.inbox.accept(inbound, RunId(random_uuid()))
        self._wake_sender.send_nowait(Waiting(accepted.run, inbound, accepted.accepted_at))

    async def _attend_wakes(self) -> None:
        async for waiting in self.wakes:
            session = waiting.inbound.session
            if not self.is_active(session):
                self._record_wake(waiting.inbound)
            self.wake(session)

    def _record_wake(self, inbound: Inbound) -> None:
        """Record the reason for an automatic turn, next to the heartbeats."""
        wake = _WAKES.get(inbound.source)
        if wake is None:
            return
        home = self.sessions.home
        first_line = inbound.text.lstrip().partition("\n")[0][:MAX_WAKE_CHARS]
        detail = home.redactor.redact(f"{inbound.session}: {first_line}")
        beat = WakeRecord(inbound.session.agent, home.clock.now(), wake, WOKEN, detail)
        WakeLog(self.sessions.services.database, home.clock).record(beat)

    def wake(self, session: SessionKey) -> None:
        """Start a task that serves a session, unless there is one."""
        if self._is_closing or session in self._driving:
            return
        scope = self._driving[session] = anyio.CancelScope()
        # The task works for the client whose message it answers first.
        work = partial(self._serve_session, session, scope)
        self._tasks.start_soon(run_in_steps, self.steps, (*current_share()[:CONNECTION_LEVELS], session.text), work)

    async def _serve_session(self, session: SessionKey, scope: anyio.CancelScope) -> None:
        """Answer the waiting messages of a session; an error without a caller is logged and retried later."""
        services, home = self.sessions.services, self.sessions.home
        lease = home.lease(session)
        idle, more, pause = True, True, 1.0
        try:
            with scope:
                while more and self._is_wanted(session):
                    try:
                        if not (self.runs_turns and lease.try_acquire()):
                            await self._wait_for_lease(session, lease)
                            more = lease.held or services.inbox.is_unfinished(session)
                            continue
                        async with self._place(session):
                            runner = self.sessions.runner(session)
                            server = SessionServer(runner, services.inbox, lease, home.clock, self._settle)
                            more = await server.serve_next(partial(self._find_audience, session), idle=idle)
                        idle = False
                        self._look_up(session)
                        self._follow(session.agent)
                    except Exception as error:  # boundary: plugins, tools and disks can fail; the message waits
                        lease.release()
                        if not self._fail_callers(session, first_cause(error)):
                            log.exception("a turn in %s failed; trying again in %g s", session, pause)
                            await anyio.sleep(pause)
                            pause = min(pause * 2, MAX_PAUSE)
                    finally:
                        lease.release()
        finally:
            del self._driving[session]
            for _, pending in self._open_runs(session):
                pending.notify()

    def _is_wanted(self, session: SessionKey) -> bool:
        """Return whether this process answers a session's messages: for its clients, or for a waiting caller."""
        return not self._is_closing and (self._is_serving or bool(self._open_runs(session)))

    async def _wait_for_lease(self, session: SessionKey, lease: Lease) -> None:
        """Wait until the lease is free or nothing is left; approval requests of the other process are asked here."""
        callers = self._callers(session)
        attended = next((each.audience for each in callers if each.audience and each.audience.ask is not None), None)
        async with anyio.create_task_group() as tasks:
            if attended is not None:
                tasks.start_soon(self.sessions.services.approvals.attend, session, attended.ask, attended.show)
            while self._is_wanted(session) and self._callers(session) == callers:
                if self.runs_turns and lease.try_acquire():
                    break
                self._look_up(session)
                if not self.sessions.services.inbox.is_unfinished(session):
                    break
                await anyio.sleep(POLL_SECONDS if self.sessions.home.team_storage is None else TEAM_POLL_SECONDS)
            tasks.cancel_scope.cancel()
        self._look_up(session)

    def _look_up(self, session: SessionKey) -> None:
        """Read the outcomes that other processes gave to messages that callers wait for."""
        for run, pending in self._open_runs(session):
            try:
                outcome = self.sessions.services.inbox.outcome(run)
            except UnknownRun as error:
                pending.error = error
                pending.notify()
                continue
            if outcome is not None:
                self._settle({run: outcome})

    def _fail_callers(self, session: SessionKey, error: Exception) -> bool:
        """Raise an error in the callers that wait for a session; return false if there are none."""
        callers = self._callers(session)
        for pending in callers:
            pending.error = error
            pending.notify()
        return bool(callers)

    async def _find_audience(self, session: SessionKey, runs: tuple[RunId, ...], notice: str) -> TurnAudience:
        """Return the clients and the callers that wait for these messages; other callers get the notice."""
        callers = self._callers(session)
        mine = [each.audience for run in runs if (each := self._pending.get(run)) is not None and each.audience]
        others = [each.audience for each in callers if each.audience and each.audience not in mine]
        if not mine and notice:
            for audience in others:
                await audience.show(Notice(notice))

        async def show(event: TurnEvent) -> None:
            self._publish(session, runs, event)
            for audience in mine:
                await audience.show(event)

        return TurnAudience(show, (*others, *mine)[-1].ask if mine or others else self._ask)

    @asynccontextmanager
    async def _place(self, session: SessionKey) -> AsyncIterator[None]:
        """Return a slot for a turn; a sub-agent needs none, because the turn that waits for it could block it."""
        if session.kind is SessionKind.SUBAGENT:
            yield
            return
        async with self._places.slot(current_share()):
            yield

    def _follow(self, agent: AgentId) -> None:
        """Keep the memory of an agent up to date from its first turn on."""
        if self._is_serving and agent not in self._followed and has_notes(self.sessions.agent(agent).workspace):
            self._followed.add(agent)
            self._tasks.start_soon(self._follow_memory, agent)

    async def _follow_memory(self, agent: AgentId) -> None:
        try:
            await self.sessions.follow_memory(agent)
        except Exception:  # boundary: watching files can fail; search works without it
            log.exception("the notes of %s are no longer watched", agent)

    def close(self) -> None:
        """Close the stream of wakes."""
        self._wake_sender.close()
        self.wakes.close()
