"""Embedding in bulk: texts are handed over in large batches, and their vectors fetched when the provider has them.

What was handed over is noted in the index, so that a process that dies, or does not want to wait, pays for nothing
twice: the next one that brings the index up to date asks for the same batches.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, Protocol

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import asdict

from retinue.core.clock import Clock
from retinue.core.errors import ModelError
from retinue.memory.errors import EmbeddingFailed
from retinue.memory.store import MemoryStore
from retinue.memory.sync import Progress
from retinue.memory.vectors import check_vectors

FEWEST = 100
"""Fewer texts than this are embedded at once: nobody should wait an hour to find a note by its meaning."""

LONGEST_PAUSE_SECONDS = 60.0
_BACKOFF = 1.5
_STORED_AT_ONCE = 256
_MOST_LOST_LOOKS = 5
_NOTE = "batches"

Outcome = Sequence[float] | str
"""A vector, or why there is none."""


class Use(Enum):
    """How far a sync goes with batches: leave them to another, take and start what it can, or wait for them too.

    A sync that somebody waits for leaves them: it may be cut off at any moment, and batches are large.
    """

    LEAVE = "leave"
    HAND_OVER = "hand over"
    SEE_THROUGH = "see through"


class BatchState(Protocol):
    """What a provider says of a batch."""

    @property
    def status(self) -> Literal["running", "finished", "failed"]: ...

    @property
    def done(self) -> int: ...

    @property
    def reason(self) -> str | None:
        """Why it failed, or ended without all its texts."""
        ...


class BulkEmbedder(Protocol):
    """Something that embeds many texts in its own time; every method raises a `ModelError` where it cannot."""

    @property
    def largest(self) -> int:
        """How many texts a batch may have."""
        ...

    @property
    def wait(self) -> bool: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def poll_seconds(self) -> float: ...

    @property
    def timeout_seconds(self) -> float: ...

    async def submit(self, texts: Mapping[str, str]) -> str:
        """Hand over texts, each under a key of its own; returns the batch's name."""
        ...

    async def look(self, batch: str) -> BatchState: ...

    def collect(self, batch: str) -> AsyncIterator[tuple[str, Outcome]]:
        """What came of each text of a batch that ended."""
        ...

    async def cancel(self, batch: str) -> None: ...


class Ticket(Struct, frozen=True):
    """A batch that was handed over: its name, how many texts, and when."""

    id: str
    count: int
    at: str

    def is_late(self, now: datetime, seconds: float) -> bool:
        return now - datetime.fromisoformat(self.at) > timedelta(seconds=seconds)


class BulkOutcome(Struct):
    """What came of it: how many texts were embedded, how many wait for a batch, how many for somebody to start one."""

    embedded: int = 0
    waiting: int = 0
    postponed: int = 0
    notes: list[str] = field(default_factory=list)


def next_pause(pause: float) -> float:
    """How long to wait before the next look, given the last wait."""
    return min(pause * _BACKOFF, LONGEST_PAUSE_SECONDS)


def read_tickets(store: MemoryStore, who: str) -> list[Ticket]:
    """The batches of an embedder that are under way."""
    try:
        found = json.loads(store.note(_NOTE) or "{}").get(who, [])
        return [Ticket(str(row["id"]), int(row["count"]), str(row["at"])) for row in found]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def write_tickets(stores: Sequence[MemoryStore], who: str, tickets: Sequence[Ticket]) -> None:
    text = json.dumps({who: [asdict(ticket) for ticket in tickets]} if tickets else {})
    for store in stores:
        store.set_note(_NOTE, text)


class BulkRun:
    """One go at embedding what an index lacks. `ledger` is the index that outlives a rebuild of `store` beside it."""

    def __init__(
        self,
        bulk: BulkEmbedder,
        store: MemoryStore,
        ledger: MemoryStore,
        clock: Clock,
        *,
        who: str,
        progress: Progress,
    ) -> None:
        self._bulk = bulk
        self._store = store
        self._stores = (store,) if store is ledger else (store, ledger)
        self._clock = clock
        self._who = who
        self._progress = progress
        self._tickets = read_tickets(ledger, who)
        self._outcome = BulkOutcome()
        self._total = 0
        self._troubled = False

    async def run(self, use: Use) -> BulkOutcome:
        """Go as far as `use` allows. Whatever fails is told and left to be embedded directly."""
        self._total = await anyio.to_thread.run_sync(self._store.count_unembedded)
        if self._tickets:
            await self._keep(self._tickets)  # an index that was begun beside the old one does not know of them
        if use is not Use.LEAVE:
            await self._work(waits=use is Use.SEE_THROUGH and self._bulk.wait)
        outcome = self._outcome
        outcome.waiting = sum(ticket.count for ticket in self._tickets)
        left = await anyio.to_thread.run_sync(self._store.count_unembedded) - outcome.waiting
        if use is Use.LEAVE and left >= FEWEST:
            outcome.postponed = left
            outcome.notes.append(f"{left:,} texts wait to be embedded in a batch; `retinue memory index` starts it.")
        if outcome.waiting:
            outcome.notes.append(f"{outcome.waiting:,} texts are being embedded in a batch.")
        return outcome

    async def _work(self, *, waits: bool) -> None:
        pause = self._bulk.poll_seconds
        lost = 0
        more = True
        while True:
            more = more and not self._troubled and await self._start_more()
            if not self._tickets:
                return
            ended = False
            try:
                ended = await self._look_round()
                lost = 0
            except ModelError as error:
                lost += 1
                if lost == _MOST_LOST_LOOKS:
                    await self._keep([])
                    self._tell(f"Batches can no longer be asked for, so texts are embedded directly: {error}")
                    return
            if ended:
                pause = self._bulk.poll_seconds
            elif not waits:
                return
            else:
                await anyio.sleep(pause)
                pause = next_pause(pause)

    async def _start_more(self) -> bool:
        """Hand over what nobody works on yet; false once there is no more to hand over, or that failed."""
        while len(self._tickets) < self._bulk.concurrency:
            skip = sum(ticket.count for ticket in self._tickets)
            texts = await anyio.to_thread.run_sync(self._store.unembedded, self._bulk.largest, skip)
            if len(texts) < FEWEST:
                return False
            try:
                batch = await self._bulk.submit({item.hash: item.whole for item in texts})
            except ModelError as error:
                self._tell(f"No batch could be started, so texts are embedded directly: {error}")
                return False
            at = self._clock.now().isoformat(timespec="seconds")
            await self._keep([*self._tickets, Ticket(batch, len(texts), at)])
        return True

    async def _look_round(self) -> bool:
        """Ask for every batch; true where one ended."""
        moved = False
        done = self._outcome.embedded
        for ticket in list(self._tickets):
            state = await self._bulk.look(ticket.id)
            if state.status == "running" and ticket.is_late(self._clock.now(), self._bulk.timeout_seconds):
                await self._bulk.cancel(ticket.id)
                await self._drop(ticket, f"took longer than {self._bulk.timeout_seconds / 60:g} minutes")
            elif state.status == "failed":
                await self._drop(ticket, f"failed: {state.reason or 'no reason was given'}")
            elif state.status == "finished":
                await self._take(ticket, state.reason)
            else:
                done += state.done
                continue
            moved = True
        self._progress("embedding in batches", max(done, self._outcome.embedded), max(self._total, done))
        return moved

    async def _take(self, ticket: Ticket, reason: str | None) -> None:
        """Put the vectors of a batch into the index."""
        failed = 0
        first = reason
        portion: dict[str, Sequence[float]] = {}
        async for key, outcome in self._bulk.collect(ticket.id):
            if isinstance(outcome, str):
                failed += 1
                first = first or outcome
                continue
            portion[key] = outcome
            if len(portion) >= _STORED_AT_ONCE:
                first = await self._store_portion(portion) or first
                portion = {}
        first = await self._store_portion(portion) or first
        await self._keep([kept for kept in self._tickets if kept != ticket])
        if first is not None:
            what = f"{failed:,} of {ticket.count:,} texts of a batch" if failed else "Texts of a batch"
            self._tell(f"{what} failed and are embedded directly: {first}")

    async def _store_portion(self, portion: Mapping[str, Sequence[float]]) -> str | None:
        if not portion:
            return None
        try:
            vectors = check_vectors(list(portion.values()), len(portion), f"The batch of {self._who}")
            await anyio.to_thread.run_sync(self._store.embed, dict(zip(portion, vectors, strict=True)), {})
        except EmbeddingFailed as error:
            return str(error)
        self._outcome.embedded += len(portion)
        return None

    async def _drop(self, ticket: Ticket, why: str) -> None:
        await self._keep([kept for kept in self._tickets if kept != ticket])
        self._tell(f"A batch of {ticket.count:,} texts {why}. They are embedded directly.")

    def _tell(self, what: str) -> None:
        """Note a failure; no further batch is started after it."""
        self._troubled = True
        self._outcome.notes.append(what)

    async def _keep(self, tickets: Sequence[Ticket]) -> None:
        self._tickets = list(tickets)
        await anyio.to_thread.run_sync(write_tickets, self._stores, self._who, self._tickets)
