"""Embedding the texts of an index that have no vector yet, directly or through the batch API of a provider.

Submitted batches are recorded in the index. If the process ends, or does not wait, the next sync polls the same
batches, so that nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, field

from retinue.core.clock import Clock
from retinue.core.errors import ModelError, RetinueError
from retinue.memory.embedding import Embedder, EmbeddingFailed, check_vectors, embed_checked
from retinue.memory.scan import Progress, SyncTally
from retinue.memory.store.protocol import Codes, IndexStore, UnembeddedText
from retinue.memory.store.vectors import encode_lines

MIN_BATCH_TEXTS = 100
"""Fewer texts than this are embedded directly, because a batch can take an hour."""

MAX_PAUSE_SECONDS = 60.0
_BACKOFF = 1.5
_STORED_AT_ONCE = 256
_MAX_FAILED_POLLS = 5
_META_KEY = "batches"

EmbeddingOutcome = Sequence[float] | str
"""A vector, or the reason why there is none."""


class BatchUse(Enum):
    """What a sync does with batches: skip them, submit and collect them, or also wait for them.

    A sync on behalf of a search skips them, because it can be cancelled at any moment and batches are large.
    """

    SKIP = "skip"
    SUBMIT = "submit"
    WAIT = "wait"


class BatchProgress(Protocol):
    """The status of a batch as reported by the provider."""

    @property
    def status(self) -> Literal["running", "finished", "failed"]: ...

    @property
    def done(self) -> int: ...

    @property
    def reason(self) -> str | None:
        """Why it failed, or finished without some of its texts."""
        ...


class BatchEmbedder(Protocol):
    """Embeds many texts asynchronously; every method raises a `ModelError` on failure."""

    @property
    def largest(self) -> int:
        """The maximum number of texts in a batch."""
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
        """Submit texts, each under a unique key; return the id of the batch."""
        ...

    async def look(self, batch: str) -> BatchProgress: ...

    def collect(self, batch: str) -> AsyncIterator[tuple[str, EmbeddingOutcome]]:
        """Yield the outcome of each text of a finished batch."""
        ...

    async def cancel(self, batch: str) -> None: ...


class PendingBatch(Struct, frozen=True):
    """A submitted batch: its id, number of texts and time of submission."""

    id: str
    count: int
    at: str

    def is_late(self, now: datetime, seconds: float) -> bool:
        return now - datetime.fromisoformat(self.at) > timedelta(seconds=seconds)


class BatchOutcome(Struct):
    """How many texts were embedded, wait in a batch, or wait for a batch to be submitted."""

    embedded: int = 0
    waiting: int = 0
    postponed: int = 0
    notes: list[str] = field(default_factory=list)


def next_pause(pause: float) -> float:
    """Return the pause before the next poll, given the last pause."""
    return min(pause * _BACKOFF, MAX_PAUSE_SECONDS)


def read_pending_batches(store: IndexStore, who: str) -> list[PendingBatch]:
    """Return the running batches of an embedder."""
    try:
        return msgspec.json.decode(store.get_meta(_META_KEY) or "{}", type=dict[str, list[PendingBatch]]).get(who, [])
    except ValueError:
        return []


def write_pending_batches(stores: Sequence[IndexStore], who: str, batches: Sequence[PendingBatch]) -> None:
    text = msgspec.json.encode({who: batches} if batches else {}).decode()
    for store in stores:
        store.set_meta(_META_KEY, text)


class BatchRun:
    """One attempt to embed the missing texts of an index. `ledger` is the index that outlives a rebuild of `store`."""

    def __init__(
        self,
        bulk: BatchEmbedder,
        store: IndexStore,
        ledger: IndexStore,
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
        self._pending = read_pending_batches(ledger, who)
        self._outcome = BatchOutcome()
        self._total = 0
        self._failed = False

    async def run(self, use: BatchUse) -> BatchOutcome:
        """Process batches as far as `use` allows. Failures are reported, and their texts left for direct embedding."""
        self._total = await anyio.to_thread.run_sync(self._store.count_unembedded)
        if self._pending:
            await self._save(self._pending)  # a rebuilt index does not have the record of them yet
        if use is not BatchUse.SKIP:
            await self._process(waits=use is BatchUse.WAIT and self._bulk.wait)
        outcome = self._outcome
        outcome.waiting = sum(pending.count for pending in self._pending)
        left = await anyio.to_thread.run_sync(self._store.count_unembedded) - outcome.waiting
        if use is BatchUse.SKIP and left >= MIN_BATCH_TEXTS:
            outcome.postponed = left
            outcome.notes.append(f"{left:,} texts wait to be embedded in a batch; run `retinue memory index`.")
        if outcome.waiting:
            outcome.notes.append(f"{outcome.waiting:,} texts are being embedded in a batch.")
        return outcome

    async def _process(self, *, waits: bool) -> None:
        pause = self._bulk.poll_seconds
        failed_polls = 0
        more = True
        while True:
            more = more and not self._failed and await self._submit_more()
            if not self._pending:
                return
            ended = False
            try:
                ended = await self._poll()
                failed_polls = 0
            except ModelError as error:
                failed_polls += 1
                if failed_polls == _MAX_FAILED_POLLS:
                    await self._save([])
                    self._record_failure(f"Batches cannot be polled, so texts are embedded directly: {error}")
                    return
            if ended:
                pause = self._bulk.poll_seconds
            elif not waits:
                return
            else:
                await anyio.sleep(pause)
                pause = next_pause(pause)

    async def _submit_more(self) -> bool:
        """Submit texts that are in no batch yet; return False if none are left or submitting failed."""
        while len(self._pending) < self._bulk.concurrency:
            skip = sum(pending.count for pending in self._pending)
            texts = await anyio.to_thread.run_sync(self._store.unembedded, self._bulk.largest, skip)
            if len(texts) < MIN_BATCH_TEXTS:
                return False
            try:
                batch = await self._bulk.submit({item.hash: item.whole for item in texts})
            except ModelError as error:
                self._record_failure(f"No batch could be submitted, so texts are embedded directly: {error}")
                return False
            at = self._clock.now().isoformat(timespec="seconds")
            await self._save([*self._pending, PendingBatch(batch, len(texts), at)])
        return True

    async def _poll(self) -> bool:
        """Poll every running batch; return True if one ended."""
        moved = False
        done = self._outcome.embedded
        for pending in list(self._pending):
            state = await self._bulk.look(pending.id)
            if state.status == "running" and pending.is_late(self._clock.now(), self._bulk.timeout_seconds):
                await self._bulk.cancel(pending.id)
                await self._drop(pending, f"took longer than {self._bulk.timeout_seconds / 60:g} minutes")
            elif state.status == "failed":
                await self._drop(pending, f"failed: {state.reason or 'no reason given'}")
            elif state.status == "finished":
                await self._take(pending, state.reason)
            else:
                done += state.done
                continue
            moved = True
        self._progress("embedding in batches", max(done, self._outcome.embedded), max(self._total, done))
        return moved

    async def _take(self, pending: PendingBatch, reason: str | None) -> None:
        """Store the vectors of a finished batch in the index."""
        failed = 0
        first = reason
        portion: dict[str, Sequence[float]] = {}
        async for key, outcome in self._bulk.collect(pending.id):
            if isinstance(outcome, str):
                failed += 1
                first = first or outcome
                continue
            portion[key] = outcome
            if len(portion) >= _STORED_AT_ONCE:
                first = await self._store_portion(portion) or first
                portion = {}
        first = await self._store_portion(portion) or first
        await self._save([kept for kept in self._pending if kept != pending])
        if first is not None:
            what = f"{failed:,} of {pending.count:,} texts of a batch" if failed else "Texts of a batch"
            self._record_failure(f"{what} failed and are embedded directly: {first}")

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

    async def _drop(self, pending: PendingBatch, why: str) -> None:
        await self._save([kept for kept in self._pending if kept != pending])
        self._record_failure(f"A batch of {pending.count:,} texts {why}. They are embedded directly.")

    def _record_failure(self, what: str) -> None:
        """Record a failure; no further batch is submitted after it."""
        self._failed = True
        self._outcome.notes.append(what)

    async def _save(self, batches: Sequence[PendingBatch]) -> None:
        self._pending = list(batches)
        await anyio.to_thread.run_sync(write_pending_batches, self._stores, self._who, self._pending)


async def embed_missing(
    embedder: Embedder,
    store: IndexStore,
    ledger: IndexStore,
    clock: Clock,
    use: BatchUse,
    *,
    tally: SyncTally,
    progress: Progress,
) -> str | None:
    """Embed the texts without a vector; return the reason if that failed. `ledger` outlives a rebuild of `store`."""
    skip = 0
    if embedder.bulk is not None:
        who = f"{embedder.provider}/{embedder.model}/{embedder.key}"
        run = BatchRun(embedder.bulk, store, ledger, clock, who=who, progress=progress)
        outcome = await run.run(use)
        tally.embedded += outcome.embedded
        tally.waiting = outcome.waiting
        tally.notes += outcome.notes
        if outcome.postponed:
            return None
        skip = outcome.waiting
    return await _embed_directly(embedder, store, skip, tally, progress)


async def _embed_directly(
    embedder: Embedder, store: IndexStore, skip: int, tally: SyncTally, progress: Progress
) -> str | None:
    dims: int | None = None
    missing = await anyio.to_thread.run_sync(store.count_unembedded) - skip
    done = 0
    while True:
        texts = await anyio.to_thread.run_sync(store.unembedded, embedder.batch, skip)
        if not texts:
            return None
        try:
            vectors = await embed_checked(embedder, [item.whole for item in texts])
            if dims is not None and vectors.shape[1] != dims:
                raise EmbeddingFailed(f"{embedder.provider}/{embedder.model} changed its dimensions.")
            lines = await _embed_lines(embedder, texts) if embedder.takes_lines else {}
        except RetinueError as error:
            return str(error)
        dims = vectors.shape[1]
        by_hash = {item.hash: vector for item, vector in zip(texts, vectors, strict=True)}
        await anyio.to_thread.run_sync(store.embed, by_hash, lines)
        tally.embedded += len(texts)
        done += len(texts)
        progress("embedding", done, max(done, missing))


async def _embed_lines(embedder: Embedder, texts: Sequence[UnembeddedText]) -> dict[str, Codes]:
    """Embed every line of the texts, because one relevant line is lost in the average of twenty others."""
    lines = [item.text.split("\n") for item in texts]
    codes = encode_lines(await embed_checked(embedder, [line for each in lines for line in each]))
    found: dict[str, Codes] = {}
    at = 0
    for item, each in zip(texts, lines, strict=True):
        found[item.hash] = codes[at : at + len(each)]
        at += len(each)
    return found
