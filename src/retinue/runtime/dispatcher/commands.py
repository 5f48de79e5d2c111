"""Slash commands among the messages: each is run once and has an answer, but no turn and no row in the inbox."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError
from retinue.core.events import TurnEvent, TurnFinished, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Usage
from retinue.dispatch.commands.command import Answer
from retinue.dispatch.inbox import Acceptance
from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

MAX_ANSWERS = 1_000

RunCommand = Callable[[Inbound], Awaitable[Answer | None]]
"""Runs the slash command in a message; returns None if the message is not a command."""
Notify = Callable[[SessionKey, RunId, str], Awaitable[None]]
"""Shows a text to the clients of a session and to the caller of a message."""
Publish = Callable[[SessionKey, tuple[RunId, ...], TurnEvent], None]
"""Receives the events of a session, with the messages that the turn answers."""

K = TypeVar("K")
V = TypeVar("V")


class DispatcherClosed(RetinueError):
    """The process is shutting down and accepts no messages."""


class _Command:
    """A running slash command: in the end it is accepted, leaves a message to continue with, or fails."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.accepted: Acceptance | None = None
        self.message: Inbound | None = None
        self.error: Exception | None = None


class CommandRunner:
    """Runs the slash commands of this process in tasks of its own, and remembers their last answers.

    The sender of a command may disconnect, or send it again while it runs.
    """

    def __init__(
        self, sessions: Sessions, run_command: RunCommand, tasks: TaskGroup, notify: Notify, publish: Publish
    ) -> None:
        self._sessions = sessions
        self._run_command = run_command
        self._tasks = tasks
        self._notify = notify
        self._publish = publish
        self._running: dict[str, _Command] = {}
        self._answers: OrderedDict[RunId, Outbound] = OrderedDict()
        self._accepted: OrderedDict[str, Acceptance] = OrderedDict()

    @property
    def are_running(self) -> bool:
        """Whether a command of this process has not ended yet."""
        return bool(self._running)

    def answer(self, run: RunId) -> Outbound | None:
        """Return the answer of a command, if this message was one."""
        return self._answers.get(run)

    def accepted(self, idempotency: str | None) -> Acceptance | None:
        """Return the acknowledgement of the command that was sent with this key."""
        return self._accepted.get(idempotency) if idempotency is not None else None

    async def run(self, inbound: Inbound, run: RunId, idempotency: str | None) -> Acceptance | Inbound:
        """Run a slash command; return the message that goes to the agent instead, if there is one."""
        name = idempotency or run
        command = self._running.get(name)
        if command is None:
            command = self._running[name] = _Command()
            self._tasks.start_soon(self._carry_out, command, inbound, run, idempotency)
        await command.ended.wait()
        if command.error is not None:
            raise command.error
        done = command.accepted or command.message
        if done is None:
            raise DispatcherClosed("The gateway stopped while running the command. Check whether it took effect.")
        return done

    async def _carry_out(self, command: _Command, inbound: Inbound, run: RunId, idempotency: str | None) -> None:
        try:
            answer = await self._run_command(inbound)
            if answer is None:
                command.message = inbound
            elif answer.ask is None:
                command.accepted = self._finish(inbound, run, answer.text, idempotency)
            else:
                if answer.text:
                    await self._notify(inbound.session, run, answer.text)
                command.message = replace(inbound, text=answer.ask)
        except Exception as error:  # noqa: BLE001 - border: raised to the sender, which may be gone
            log.warning("a command in %s failed: %s", inbound.session, error)
            command.error = error
        finally:
            self._running.pop(idempotency or run, None)
            command.ended.set()

    def _finish(self, inbound: Inbound, run: RunId, text: str, idempotency: str | None) -> Acceptance:
        session = self._sessions.runner(inbound.session).parts.store.peek(inbound.session)
        answer = Outbound(run, inbound.session, str(session.id) if session else "", TurnStatus.OK, text)
        _add(self._answers, run, answer)
        accepted = Acceptance(run, self._sessions.home.clock.now())
        if idempotency is not None:
            _add(self._accepted, idempotency, accepted)
        self._publish(inbound.session, (run,), TurnFinished(run, TurnStatus.OK, text, Usage(), ""))
        return accepted


def _add(known: OrderedDict[K, V], name: K, value: V) -> None:
    known[name] = value
    while len(known) > MAX_ANSWERS:
        known.popitem(last=False)
