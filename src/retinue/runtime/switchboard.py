"""Many sessions at once: messages are accepted for good, and one task per session answers them in order.

The switchboard is how a process that serves others drives turns. Its tasks belong to it, not to whoever sent a message:
a client that goes away takes nothing with it. What it has not answered when it closes is in the inbox, and the next
start finds it there.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.approval import Ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError
from retinue.core.events import Emit, Notice, TurnEvent, TurnFinished, TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey, SessionKind
from retinue.core.messages import Usage
from retinue.dispatch.commands.triggers import as_meant
from retinue.dispatch.inbox import Accepted
from retinue.dispatch.overheard import Overheard
from retinue.runtime.memories import has_notes
from retinue.runtime.runtime import Runtime
from retinue.runtime.wakes import note_wake
from retinue.storage.lease import SessionLease

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
LONGEST_PAUSE = 30.0
MOST_SESSIONS = 5_000
"""Sessions that may have something to answer at one time; the inbox bounds what waits in each."""
MOST_COMMAND_ANSWERS = 1_000
ROOM_BEYOND_LANES = 16
"""Turns that may be prepared while others run, so that a free lane never waits for a plan."""

Publish = Callable[[SessionKey, tuple[RunId, ...], TurnEvent], None]
"""Told what happens in a session, and in the turn that answers which messages."""


K = TypeVar("K")
V = TypeVar("V")


class SwitchboardClosed(RetinueError):
    """The process is about to end and accepts nothing more."""


class TooBusy(RetinueError):
    """Too many sessions wait; the message was not accepted."""


class _Command(Struct):
    """A command that is being carried out: at the end it was accepted, or left a message to go on with, or failed."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    accepted: Accepted | None = None
    message: Inbound | None = None
    error: Exception | None = None


class Switchboard(Struct):
    """Accepts messages and sees to it that each is answered."""

    runtime: Runtime
    publish: Publish
    ask: Ask
    _tasks: TaskGroup
    _gate: anyio.CapacityLimiter
    overheard: Overheard = field(default_factory=Overheard)
    """What groups say without calling anybody."""
    _driving: set[SessionKey] = field(default_factory=set)
    _ended: dict[SessionKey, anyio.Event] = field(default_factory=dict)
    _answers: OrderedDict[RunId, Outbound] = field(default_factory=OrderedDict)
    _commands: OrderedDict[str, Accepted] = field(default_factory=OrderedDict)
    _commanding: dict[str, _Command] = field(default_factory=dict)
    _followed: set[AgentId] = field(default_factory=set)
    _closing: bool = False

    @property
    def active(self) -> int:
        """How many sessions have something to answer."""
        return len(self._driving)

    def is_active(self, session: SessionKey) -> bool:
        return session in self._driving

    async def submit(self, inbound: Inbound, idempotency: str | None = None) -> Accepted:
        """Keep a message and let it be answered; a slash command is carried out before this returns.

        The same idempotency key again gives the first acknowledgement and does nothing.
        """
        if self._closing:
            raise SwitchboardClosed("The gateway is shutting down and accepts no messages. Try again in a moment.")
        if idempotency is not None and idempotency in self._commands:
            return replace(self._commands[idempotency], duplicate=True)
        if len(self._driving) >= MOST_SESSIONS and inbound.session not in self._driving:
            raise TooBusy(f"{MOST_SESSIONS} sessions wait for answers already. Try again later.")
        run = RunId(random_uuid())
        config = self.runtime.foundation.config
        inbound = as_meant(inbound, config.session.reset_triggers, bash=config.commands.bash)
        if inbound.text.lstrip().startswith("/"):
            done = await self._command(inbound, run, idempotency)
            if isinstance(done, Accepted):
                return done
            inbound = done
        accepted = self.runtime.inbox.accept(inbound, run, idempotency)
        if not accepted.duplicate:
            note_wake(self.runtime, inbound)
            self.wake(inbound.session)
        return accepted

    async def _command(self, inbound: Inbound, run: RunId, idempotency: str | None) -> Accepted | Inbound:
        """Carry out a command, or say what goes to the agent instead.

        It runs in a task of ours: whoever sent it may go away, or come back and send it again meanwhile.
        """
        name = idempotency or run
        command = self._commanding.get(name)
        if command is None:
            command = self._commanding[name] = _Command()
            self._tasks.start_soon(self._carry_out, command, inbound, run, idempotency)
        await command.ended.wait()
        if command.error is not None:
            raise command.error
        done = command.accepted or command.message
        if done is None:
            raise SwitchboardClosed("The gateway ended while the command was carried out. Look whether it was.")
        return done

    async def _carry_out(self, command: _Command, inbound: Inbound, run: RunId, idempotency: str | None) -> None:
        try:
            answer = await self.runtime.conversation(inbound.session).command(inbound)
            if answer is None:
                command.message = inbound
            elif answer.ask is None:
                command.accepted = self._note_command(inbound, run, answer.text, idempotency)
            else:
                if answer.text:
                    self.publish(inbound.session, (run,), Notice(answer.text))
                command.message = replace(inbound, text=answer.ask)
        except Exception as error:  # noqa: BLE001 - border: told to whoever sent it, who may be gone
            log.warning("a command in %s failed: %s", inbound.session, error)
            command.error = error
        finally:
            self._commanding.pop(idempotency or run, None)
            command.ended.set()

    async def wait(self, run: RunId, seconds: float) -> Outbound | None:
        """What became of a message; None where it has no answer in time. Raises `UnknownRun` where it is not there."""
        if run in self._answers:
            return self._answers[run]
        outcome: Outbound | None = self.runtime.inbox.outcome(run)
        if outcome is not None or seconds <= 0:
            return outcome
        session = self.runtime.inbox.session_of(run)
        with anyio.move_on_after(seconds):
            while outcome is None:
                ended = self._ended.setdefault(session, anyio.Event())
                self.wake(session)
                await ended.wait()
                outcome = self.runtime.inbox.outcome(run)
        return outcome

    def wake(self, session: SessionKey) -> None:
        """See to it that somebody answers what waits in a session."""
        if self._closing or session in self._driving:
            return
        self._driving.add(session)
        self._tasks.start_soon(self._drive, session)

    def resume(self) -> int:
        """Take up what a process before this one left unanswered; returns in how many sessions."""
        left = self.runtime.inbox.unfinished()
        for session in left:
            self.wake(session)
        return len(left)

    async def drain(self, seconds: float) -> bool:
        """Begin nothing more and wait for turns and commands that run; false where some still did after that time."""
        self._closing = True
        with anyio.move_on_after(seconds):
            while self._driving or self._commanding:  # noqa: ASYNC110 - drivers end one by one
                await anyio.sleep(POLL_SECONDS / 5)
        return not self._driving and not self._commanding

    def _note_command(self, inbound: Inbound, run: RunId, text: str, idempotency: str | None) -> Accepted:
        session = self.runtime.conversation(inbound.session).parts.store.peek(inbound.session)
        answer = Outbound(run, inbound.session, str(session.id) if session else "", TurnStatus.OK, text)
        _keep(self._answers, run, answer)
        accepted = Accepted(run, self.runtime.foundation.clock.now())
        if idempotency is not None:
            _keep(self._commands, idempotency, accepted)
        self.publish(inbound.session, (run,), TurnFinished(run, TurnStatus.OK, text, Usage(), ""))
        return accepted

    async def _drive(self, session: SessionKey) -> None:
        """Answer everything in a session, then end; a failure that is nobody's fault is tried again after a pause."""
        lease = SessionLease(self.runtime.foundation.home, session)
        idle, pause = True, 1.0
        try:
            while not self._closing:
                try:
                    more = await self._step(session, lease, idle=idle)
                except Exception:  # border: plugins, tools and disks fail here; the message waits for the next try
                    log.exception("a turn in %s failed; trying again in %g s", session, pause)
                    self._tell(session)
                    await anyio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                self._tell(session)
                if not more:
                    break
                idle = False
        finally:
            self._driving.discard(session)
            self._tell(session)

    async def _step(self, session: SessionKey, lease: SessionLease, *, idle: bool) -> bool:
        """Answer what is next; false where nothing waits."""
        if not lease.try_acquire():
            if not self.runtime.inbox.is_unfinished(session):
                return False
            await anyio.sleep(POLL_SECONDS)
            return True
        try:
            async with _entered(self._gate, session):
                conversation = self.runtime.conversation(session)
                more = await conversation.attendant(lease).serve_next(
                    lambda runs: self._watch(session, runs), idle=idle
                )
        finally:
            lease.release()
        self._follow(session.agent)
        return more

    def _watch(self, session: SessionKey, runs: tuple[RunId, ...]) -> tuple[Emit, Ask]:
        async def show(event: TurnEvent) -> None:
            self.publish(session, runs, event)

        return show, self.ask

    def _tell(self, session: SessionKey) -> None:
        ended = self._ended.pop(session, None)
        if ended is not None:
            ended.set()

    def _follow(self, agent: AgentId) -> None:
        """Keep the memory of an agent fresh from its first turn on."""
        if agent not in self._followed and has_notes(self.runtime.agent(agent).room):
            self._followed.add(agent)
            self._tasks.start_soon(self._follow_memory, agent)

    async def _follow_memory(self, agent: AgentId) -> None:
        try:
            await self.runtime.follow_memory(agent)
        except Exception:  # border: watching files is foreign code; search goes on without it
            log.exception("the notes of %s are not watched any more", agent)

    async def attend_wakes(self) -> None:
        """Give an agent what happens by itself, such as the end of a background command."""
        async for waiting in self.runtime.wakes:
            session = waiting.inbound.session
            if not self.is_active(session):
                note_wake(self.runtime, waiting.inbound)
            self.wake(session)


@asynccontextmanager
async def open_switchboard(
    runtime: Runtime, publish: Publish, ask: Ask, *, attends_wakes: bool = True
) -> AsyncIterator[Switchboard]:
    """A switchboard; what runs at the end of the block is cut off, and found again at the next start.

    `attends_wakes` is false where somebody else in the process tells agents what happens by itself.
    """
    async with anyio.create_task_group() as tasks:
        gate = anyio.CapacityLimiter(runtime.lanes.most + ROOM_BEYOND_LANES)
        board = Switchboard(runtime, publish, ask, tasks, gate)
        if attends_wakes:
            tasks.start_soon(board.attend_wakes)
        try:
            yield board
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _entered(gate: anyio.CapacityLimiter, session: SessionKey) -> AsyncIterator[None]:
    """A place among the turns; a sub-agent needs none, or the turn that waits for it could keep it out."""
    if session.kind is SessionKind.SUBAGENT:
        yield
        return
    async with gate:
        yield


def _keep(kept: OrderedDict[K, V], name: K, value: V) -> None:
    kept[name] = value
    while len(kept) > MOST_COMMAND_ANSWERS:
        kept.popitem(last=False)
