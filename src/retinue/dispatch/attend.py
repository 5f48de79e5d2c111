"""Seeing a message through: accepted for good, answered in its turn, by this process or by whoever holds the session.

One process at a time holds a session's lease and answers what waits there, in the order of acceptance. A process that
does not get the lease waits for the answer that the holder gives; where the holder dies, it takes over. What a dead
process had begun is finished first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import anyio

from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import Clock
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError, StorageError, first_cause
from retinue.core.events import Emit, Notice, TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.inbox import Claimed, Inbox
from retinue.dispatch.queue import Batch, QueueMode, QueueRules, Wait, merge, next_batch, refusal
from retinue.security.literals import literal
from retinue.storage.lease import SessionLease

POLL_SECONDS = 0.05
INTERRUPT_POLL_SECONDS = 0.2


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

    async def resume(self, inbound: Inbound, run: RunId, show: Emit) -> Outbound:
        """Finish a turn that its process did not: go on where the transcript ends."""
        ...

    def reread(self, run: RunId) -> Outbound:
        """What the transcripts have for a run that is answered or archived."""
        ...

    def stop(self) -> bool: ...


async def _unseen(event: TurnEvent) -> None:
    """Where the events of somebody else's message go."""


@dataclass(frozen=True, slots=True)
class Attendant:
    """Answers the messages of one session."""

    worker: Worker
    inbox: Inbox
    lease: SessionLease
    clock: Clock

    async def see_through(self, run: RunId, show: Emit, ask: Ask) -> Outbound:
        """Wait until a message that was accepted has its answer, and answer it where nobody else does."""
        while (outcome := self.inbox.outcome(run)) is None:
            if not self.lease.try_acquire():
                await anyio.sleep(POLL_SECONDS)
                continue
            try:
                await self._finish_what_was_left(show)
                await self._serve(run, show, ask)
            finally:
                self.lease.release()
        return outcome

    async def _finish_what_was_left(self, show: Emit) -> None:
        """End the turns of dead processes: what they had not begun waits again, what they had is finished."""
        left = self.inbox.abandoned(self.worker.key)
        known = {item.message.run: self.worker.recall(item.message.run) for item in left}
        self.inbox.requeue(run for run, recalled in known.items() if recalled is Recalled.NOTHING)
        for item in left:
            recalled = known[item.message.run]
            if item.message.run != item.into or recalled is Recalled.NOTHING:
                continue
            await show(Notice(f"Finishing a turn that was interrupted: {literal(item.message.inbound.text, 80)}"))
            with self._failing(item.into):
                self.inbox.finish(item.into, await self._finish(item, recalled))

    async def _finish(self, item: Claimed, recalled: Recalled) -> Outbound:
        if recalled is Recalled.OPEN:
            return await self.worker.resume(item.message.inbound, item.into, _unseen)
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
                await anyio.sleep(max(0.0, (batch.until - self.clock.now()).total_seconds()))
                continue
            self.inbox.drop(batch.refused, refusal(rules))
            if batch.runs:
                await self._answer(batch, rules, mine, show, ask)

    async def _answer(self, batch: Batch, rules: QueueRules, mine: RunId, show: Emit, ask: Ask) -> None:
        self.inbox.claim(self.worker.key, batch.runs, batch.into)
        inbound = merge(batch)
        if mine not in batch.runs:
            await show(Notice(f"First, a message that was left waiting: {literal(inbound.text, 80)}"))
            show, ask = _unseen, nobody_to_ask
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
        except (RetinueError, ExceptionGroup) as error:
            cause = first_cause(error)
            if not isinstance(cause, RetinueError) or isinstance(cause, StorageError):
                raise cause from (error if error is not cause else None)
            failed = Outbound(run, self.worker.key, "", TurnStatus.FAILED, "", error=str(cause))
            self.inbox.finish(run, failed)

    async def _stop_when_asked(self) -> None:
        """End the running turn when another process asks for it; whoever asked before it began meant the one before."""
        while not (self.lease.was_asked_to_stop() and self.worker.stop()):  # noqa: ASYNC110 - from any process
            await anyio.sleep(INTERRUPT_POLL_SECONDS)

    async def _stop_for_newer(self) -> None:
        """End the running turn as soon as a newer message waits; a turn that is still being prepared, once it runs."""
        while not (self.inbox.waiting(self.worker.key) and self.worker.stop()):  # noqa: ASYNC110 - from any process
            await anyio.sleep(INTERRUPT_POLL_SECONDS)
