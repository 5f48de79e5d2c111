"""Seeing a message through: accepted for good, answered in its turn, by this process or by whoever holds the session.

One process at a time holds a session's lease and answers what waits there, in the order of acceptance. A process that
does not get the lease waits for the answer that the holder gives; where the holder dies, it takes over. What a dead
process had begun is finished first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol

import anyio
from msgspec import Struct

from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import Clock
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError, StorageError, first_cause
from retinue.core.events import Emit, Notice, TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.inbox import Claimed, Inbox
from retinue.dispatch.queue import Batch, QueueMode, QueueRules, Wait, is_result, merge, next_batch, refusal
from retinue.security.literals import literal
from retinue.storage.lease import SessionLease

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
LINGER_SECONDS = 0.1
INTERRUPT_POLL_SECONDS = 0.2
MOST_ATTEMPTS = 10
"""How many processes may end over a message before they have written down anything of it."""

POISONOUS = (
    f"{MOST_ATTEMPTS} processes ended while they began to answer this message, so it is given up. Look in the log for "
    "the reason, and send it in another form."
)
CRASHED = "An unexpected error of Retinue's own ended this message; the log has the details. Send it again."


class Recalled(Enum):
    """What a session's transcripts know of a run: nothing, its message, its answer too, or only in an archive."""

    NOTHING = "nothing"
    OPEN = "open"
    ANSWERED = "answered"
    ARCHIVED = "archived"


class Worker(Protocol):
    """A session as the attendant sees it; all of it is called while the lease is held."""

    @property
    def key(self) -> SessionKey: ...

    def rules(self) -> QueueRules: ...

    def recall(self, run: RunId) -> Recalled: ...

    async def answer(self, inbound: Inbound, run: RunId, merged: tuple[RunId, ...], show: Emit, ask: Ask) -> Outbound:
        """Answer a message; `merged` are the runs of earlier messages that it holds too."""
        ...

    async def resume(self, inbound: Inbound, run: RunId, show: Emit, ask: Ask) -> Outbound:
        """Finish a turn that its process did not: go on where the transcript ends."""
        ...

    def reread(self, run: RunId) -> Outbound:
        """What the transcripts have for a run that is answered or archived."""
        ...

    def stop(self) -> bool: ...


class Questions(Protocol):
    """What turns of other processes ask."""

    async def attend(self, session: SessionKey, here: Ask, show: Emit) -> None:
        """Ask it here, until cancelled."""
        ...


async def _unseen(event: TurnEvent) -> None:
    """Where the events of somebody else's message go."""


Watch = Callable[[tuple[RunId, ...]], tuple[Emit, Ask]]
"""Who is told about a turn that answers these messages, and who is asked in it."""


class Attendant(Struct, frozen=True):
    """Answers the messages of one session."""

    worker: Worker
    inbox: Inbox
    lease: SessionLease
    clock: Clock
    questions: Questions

    async def see_through(self, run: RunId, show: Emit, ask: Ask) -> Outbound:
        """Wait until a message that was accepted has its answer, and answer it where nobody else does."""
        while (outcome := self.inbox.outcome(run)) is None:
            if not self.lease.try_acquire():
                await self._stand_by(run, show, ask)
                continue
            try:
                await self._finish_what_was_left(show, lambda runs: (_unseen, ask))
                await self._serve(run, show, ask)
            finally:
                self.lease.release()
        return outcome

    async def _stand_by(self, run: RunId, show: Emit, ask: Ask) -> None:
        """Wait until the message is answered or the lease is ours; what the turn elsewhere asks is asked here."""
        try:
            async with anyio.create_task_group() as tasks:
                if ask is not nobody_to_ask:
                    tasks.start_soon(self.questions.attend, self.worker.key, ask, show)
                while self.inbox.outcome(run) is None and not self.lease.try_acquire():  # noqa: ASYNC110 - any process
                    await anyio.sleep(POLL_SECONDS)
                tasks.cancel_scope.cancel()
        except BaseException as error:
            self.lease.release()
            if isinstance(error, ExceptionGroup):
                raise first_cause(error) from error
            raise

    async def serve_next(self, watch: Watch, *, idle: bool) -> bool:
        """Answer what is next in the session, whoever sent it; false where nothing waits. The caller holds the lease.

        `idle` tells that no turn ran just before, so that a message need not wait for others to join it.
        """
        await self._finish_what_was_left(_unseen, watch)
        rules = self.worker.rules()
        batch = next_batch(self.inbox.waiting(self.worker.key), rules, self.clock.now(), idle=idle)
        if batch is None:
            return False
        if isinstance(batch, Wait):
            await self._linger(batch)
            return True
        self.inbox.drop(batch.refused, refusal(rules))
        if batch.runs:
            await self._answer(batch, rules, *watch(batch.runs))
        return True

    async def _linger(self, wait: Wait) -> None:
        """Wait for more, but not to the end: what comes meanwhile, from any process, can end the waiting."""
        left = (wait.until - self.clock.now()).total_seconds()
        await anyio.sleep(min(max(0.0, left), LINGER_SECONDS))

    async def _finish_what_was_left(self, show: Emit, watch: Watch) -> None:
        """End the turns of dead processes: what they had not begun waits again, what they had is finished."""
        left = self.inbox.abandoned(self.worker.key)
        if not left:
            return
        known = {item.message.run: self.worker.recall(item.message.run) for item in left}
        unbegun = [item.message for item in left if known[item.message.run] is Recalled.NOTHING]
        self.inbox.requeue(message.run for message in unbegun)
        self.inbox.drop(
            (message for message in unbegun if message.attempts >= MOST_ATTEMPTS), POISONOUS, interrupted=True
        )
        for item in left:
            recalled = known[item.message.run]
            if item.message.run != item.into or recalled is Recalled.NOTHING:
                continue
            await show(Notice(f"Finishing a turn that was interrupted: {literal(item.message.inbound.text, 80)}"))
            with self._failing(item.into):
                self.inbox.finish(item.into, await self._finish(item, recalled, watch))

    async def _finish(self, item: Claimed, recalled: Recalled, watch: Watch) -> Outbound:
        if recalled is Recalled.OPEN:
            return await self.worker.resume(item.message.inbound, item.into, *watch((item.into,)))
        return self.worker.reread(item.into)

    async def _serve(self, mine: RunId, show: Emit, ask: Ask) -> None:
        """Answer in order until the message `mine` is answered."""
        idle = True
        while self.inbox.outcome(mine) is None:
            rules = self.worker.rules()
            batch = next_batch(self.inbox.waiting(self.worker.key), rules, self.clock.now(), idle=idle)
            idle = False
            if batch is None:
                return
            if isinstance(batch, Wait):
                await self._linger(batch)
                continue
            self.inbox.drop(batch.refused, refusal(rules))
            if mine in batch.runs:
                await self._answer(batch, rules, show, ask)
            elif batch.runs:
                await show(Notice(f"First, a message that was left waiting: {literal(merge(batch).text, 80)}"))
                await self._answer(batch, rules, _unseen, ask)

    async def _answer(self, batch: Batch, rules: QueueRules, show: Emit, ask: Ask) -> None:
        self.inbox.claim(self.worker.key, batch.runs, batch.into)
        inbound = merge(batch)
        with self._failing(batch.into):
            self.lease.was_asked_to_stop()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_when_asked)
                if rules.mode is QueueMode.INTERRUPT:
                    tasks.start_soon(self._stop_for_newer)
                outbound = await self.worker.answer(inbound, batch.into, batch.runs[:-1], show, ask)
                tasks.cancel_scope.cancel()
            self.inbox.finish(batch.into, outbound)

    @contextmanager
    def _failing(self, run: RunId) -> Iterator[None]:
        """End a message that cannot be answered, so that it does not stand in the way of those after it.

        Where the disk is full or a file cannot be used the message is not to blame: it waits, and the error goes on.
        """
        try:
            yield
        except Exception as error:  # border: hooks, engines and providers of plugins run in there
            cause = first_cause(error)
            if isinstance(cause, StorageError):
                raise cause from (error if error is not cause else None)
            if not isinstance(cause, RetinueError):
                log.exception("the message %s in %s could not be answered", run, self.worker.key)
            why = str(cause) if isinstance(cause, RetinueError) else CRASHED
            self.inbox.finish(run, Outbound(run, self.worker.key, "", TurnStatus.FAILED, "", error=why))

    async def _stop_when_asked(self) -> None:
        """End the running turn when another process asks for it; whoever asked before it began meant the one before."""
        while not (self.lease.was_asked_to_stop() and self.worker.stop()):  # noqa: ASYNC110 - from any process
            await anyio.sleep(INTERRUPT_POLL_SECONDS)

    async def _stop_for_newer(self) -> None:
        """End the running turn as soon as somebody says something newer; one that is being prepared, once it runs."""
        while not (self._is_interrupted() and self.worker.stop()):  # noqa: ASYNC110 - from any process
            await anyio.sleep(INTERRUPT_POLL_SECONDS)

    def _is_interrupted(self) -> bool:
        return not all(map(is_result, self.inbox.waiting(self.worker.key)))
