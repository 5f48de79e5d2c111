"""Answering the messages of one session, in order, while its lease is held.

Turns that a dead process had begun are finished first. Each message gets exactly one outcome: the outcome is stored by
the database change that ends the message, and only a stored outcome is passed to callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import msgspec
from msgspec.structs import replace

from retinue.core.approval import Ask
from retinue.core.clock import Clock
from retinue.core.envelope import Outbound
from retinue.core.errors import RetinueError, StorageError, first_cause
from retinue.core.events import Emit, TurnFinished, TurnStatus
from retinue.core.fence import Lease
from retinue.core.keys import RunId
from retinue.core.messages import Usage
from retinue.dispatch.inbox import Claimed, Inbox, Waiting, outcome_for
from retinue.dispatch.queue import QueueMode, Wait, interrupts, merge, next_batch, refusal
from retinue.runtime.turns.resumption import pause_after
from retinue.runtime.turns.run_record import RunState
from retinue.runtime.turns.runner import SessionRunner
from retinue.security.untrusted_text import literal

log = logging.getLogger(__name__)

LINGER_SECONDS = 0.1
INTERRUPT_POLL_SECONDS = 0.2
MAX_ATTEMPTS = 10
"""How many processes may die while they begin a message before it is given up."""
POISONOUS = (
    f"{MAX_ATTEMPTS} processes ended while they began to answer this message, so it is given up. See the log for "
    "the reason, and rephrase the message."
)
CRASHED = "An internal error ended this message; the log has the details. Send it again."


class TurnAudience(msgspec.Struct, frozen=True):
    """The receiver of a turn's events, and the function that answers its approval requests; None if no person can."""

    show: Emit
    ask: Ask | None


FindAudience = Callable[[tuple[RunId, ...], str], Awaitable[TurnAudience]]
"""Returns the audience of the turn that answers these messages; callers that wait for others get the text first."""


class SessionServer:
    """Answers the messages of one session. Its methods may be called only while the session's lease is held."""

    def __init__(
        self,
        runner: SessionRunner,
        inbox: Inbox,
        lease: Lease,
        clock: Clock,
        settled: Callable[[Mapping[RunId, Outbound]], None],
    ) -> None:
        """`settled` receives outcomes as soon as they are stored."""
        self._runner = runner
        self._inbox = inbox
        self._lease = lease
        self._clock = clock
        self._settled = settled

    async def serve_next(self, find_audience: FindAudience, *, idle: bool) -> bool:
        """Answer the next messages of the session; return false if none wait.

        `idle` means that no turn ran just before, so a message need not wait for others to join it.
        """
        abandoned, waiting = self._inbox.open_messages(self._runner.key)
        if abandoned:
            for item, state in await self._sort_out_abandoned(abandoned, find_audience):
                await self._finish_abandoned(item, state, find_audience)
            waiting = self._inbox.waiting(self._runner.key)
        rules = self._runner.rules()
        batch = next_batch(waiting, rules, self._clock.now(), idle=idle)
        if batch is None:
            return False
        if isinstance(batch, Wait):
            # Not until the end: messages that arrive in the meantime, from any process, can end the wait.
            left = (batch.until - self._clock.now()).total_seconds()
            await anyio.sleep(min(max(0.0, left), LINGER_SECONDS))
            return True
        await self._drop(batch.refused, refusal(rules), find_audience)
        if not batch.runs:
            return True
        begun = next(
            (message for message in batch.answered if self._runner.has_begun(message.run, message.accepted_at)), None
        )
        if begun is not None:
            self._inbox.claim(self._runner.key, (begun.run,), begun.run)
            return True  # It is finished like a turn of a dead process.
        inbound = merge(batch)
        audience = await find_audience(
            batch.runs, f"First, a message that was left waiting: {literal(inbound.text, 80)}"
        )
        if pause := pause_after(max(message.attempts for message in batch.answered)):
            await anyio.sleep(pause)
        self._inbox.claim(self._runner.key, batch.runs, batch.into)
        async with self._ending_on_failure(batch.into, audience.show):
            self._lease.was_asked_to_stop()  # A stop request from before this turn was meant for the previous one.
            for_newer = rules.mode is QueueMode.INTERRUPT and not inbound.own_turn
            with _StopWatch(partial(self._should_stop, for_newer=for_newer), self._runner.stop):
                outbound = await self._runner.answer(inbound, batch.into, batch.runs[:-1], audience.show, audience.ask)
            self._finish(batch.into, outbound)
        return self._inbox.is_unfinished(self._runner.key)

    async def _sort_out_abandoned(
        self, left: Sequence[Claimed], find_audience: FindAudience
    ) -> list[tuple[Claimed, RunState]]:
        """Requeue messages that dead processes had claimed and not begun; return the turns that must be finished."""
        states = {item.message.run: self._runner.recall(item.message.run) for item in left}
        # Earlier versions took messages into a turn that had already answered; the model has not answered those.
        unbegun = [
            item.message
            for item in left
            if states[item.message.run] is RunState.NOTHING
            or (
                item.message.run != item.into
                and states[item.message.run] is RunState.OPEN
                and states.get(item.into) is RunState.ANSWERED
            )
        ]
        if unbegun:
            self._inbox.requeue(message.run for message in unbegun)
            poisonous = [message for message in unbegun if message.attempts >= MAX_ATTEMPTS]
            await self._drop(poisonous, POISONOUS, find_audience, interrupted=True)
        return [
            (item, states[item.message.run])
            for item in left
            if item.message.run == item.into and states[item.message.run] is not RunState.NOTHING
        ]

    async def _finish_abandoned(self, item: Claimed, state: RunState, find_audience: FindAudience) -> None:
        inbound = item.message.inbound
        notice = f"Finishing a turn that was interrupted: {literal(inbound.text, 80)}"
        audience = await find_audience((item.into,), notice)
        async with self._ending_on_failure(item.into, audience.show):
            if state is RunState.OPEN:
                outbound = await self._runner.resume(inbound, item.into, audience.show, audience.ask)
            else:
                outbound = self._runner.reread(item.into)
            self._finish(item.into, outbound)

    def _finish(self, run: RunId, outbound: Outbound) -> None:
        """Store the outcome of a turn and pass it on; if the message had already ended, its stored outcome counts."""
        ended = self._inbox.finish(run, outbound)
        outcomes = {each: outcome_for(each, outbound) for each in ended}
        if run not in outcomes:
            stored = self._inbox.outcome(run)
            outcomes.update({run: stored} if stored is not None else {})
        self._settled(outcomes)

    async def _drop(
        self, messages: Iterable[Waiting], why: str, find_audience: FindAudience, *, interrupted: bool = False
    ) -> None:
        dropped = self._inbox.drop(messages, why, interrupted=interrupted)
        for each in dropped:
            await (await find_audience((each.run,), "")).show(_ended(each.run, why))
        self._settled({each.run: replace(self._failure(each.run, why), interrupted=interrupted) for each in dropped})

    def _failure(self, run: RunId, why: str) -> Outbound:
        return Outbound(run, self._runner.key, "", TurnStatus.FAILED, "", error=why)

    @asynccontextmanager
    async def _ending_on_failure(self, run: RunId, show: Emit) -> AsyncIterator[None]:
        """End a message that cannot be answered, so that it does not block those after it.

        If the disk is full or a file cannot be used, the message is not the cause: it waits, and the error propagates.
        """
        try:
            yield
        except Exception as error:  # boundary: hooks, engines and providers of plugins run here
            cause = first_cause(error)
            if isinstance(cause, StorageError):
                raise cause from (error if error is not cause else None)
            if not isinstance(cause, RetinueError):
                log.exception("the message %s in %s could not be answered", run, self._runner.key)
            why = str(cause) if isinstance(cause, RetinueError) else CRASHED
            self._finish(run, self._failure(run, why))
            await show(_ended(run, why))

    def _should_stop(self, *, for_newer: bool) -> bool:
        if self._lease.was_asked_to_stop():
            return True
        return for_newer and any(map(interrupts, self._inbox.waiting(self._runner.key)))


def _ended(run: RunId, why: str) -> TurnFinished:
    """Return the end of a message that got no answer, for those who watch its session."""
    return TurnFinished(run, TurnStatus.FAILED, "", Usage(), "", why)


class _StopWatch:
    """Stops the turn that runs in its block as soon as `should_stop`; a turn in preparation is stopped once it runs.

    A timer asks, because a task for each turn costs more.
    """

    def __init__(self, should_stop: Callable[[], bool], stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop
        self._stop = stop
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERRUPT_POLL_SECONDS, self._look)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        try:
            self._is_due = self._is_due or self._should_stop()
        except StorageError as error:
            log.warning("whether a turn is to be stopped cannot be read: %s", error)
        if not (self._is_due and self._stop()):
            self._timer = asyncio.get_running_loop().call_later(INTERRUPT_POLL_SECONDS, self._look)
