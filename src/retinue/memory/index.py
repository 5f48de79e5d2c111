"""The memory of one agent: kept up to date with its notes, searched, read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.memory.backend import SEARCH_SECONDS, IndexStatus, MatchMode, SearchResult, SyncReport, no_progress
from retinue.memory.embedding import Embedder, embed_checked
from retinue.memory.errors import IndexDamaged
from retinue.memory.notes import Corpus, Library, NoteProblem, Provenance, no_derived_notes
from retinue.memory.search.hybrid import FoundHits, search_view
from retinue.memory.search.query import MemoryQuery, parse_query
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.snippets import MAX_CHARS, Excerpt, cut_excerpt
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import IndexIdentity, IndexStore, IndexTotals, Vector
from retinue.memory.sync.batches import BatchUse
from retinue.memory.sync.embed_missing import embed_missing
from retinue.memory.sync.scan import Progress, SyncTally, finish_scan, group_files, index_files, plan_sync

log = logging.getLogger(__name__)

EMBED_SHARE = 0.75
"""How much of a search's time its embedding may take: words must still be looked up where that hangs."""
FEW_CHUNKS = 1_000
"""Searched in about two milliseconds."""

LOOK_AGAIN_SECONDS = 2.0
_NO_EMBEDDER = "none"
_SYNCED = "synced"

T = TypeVar("T")


class MemoryIndex:
    """An index over a corpus of notes. Many may search at once; one at a time brings it up to date.

    `embedders` are tried in order: the next one is used from the moment that the one before fails to embed notes.
    """

    def __init__(
        self,
        store: IndexStore,
        corpus: Corpus,
        clock: Clock,
        *,
        embedders: Sequence[Embedder] = (),
        rules: SearchRules | None = None,
    ) -> None:
        self.store = store
        self.rules = rules or SearchRules()
        self._corpus = corpus
        self._clock = clock
        self._embedders = list(embedders)
        self._stemmer = Stemmer()
        self._turn = anyio.Lock()
        self._preparing = anyio.Lock()
        self._dirty = True
        self._damage: IndexDamaged | None = None
        """What a search came upon and bringing the index up to date need not come upon."""
        self._watched = False
        self._looked: float | None = None
        self._problems: tuple[NoteProblem, ...] = ()
        self._reason: str | None = None
        self._waiting = 0
        self._chunks: int | None = None
        """How many there were when they were searched last."""

    @property
    def library(self) -> Library:
        return self._corpus.library

    @property
    def provenance(self) -> Provenance:
        return self._corpus.provenance

    @property
    def embedder(self) -> Embedder | None:
        return self._embedders[0] if self._embedders else None

    @property
    def is_dirty(self) -> bool:
        """Whether files may have changed since they were last looked at, or the index is to be made again."""
        if self._dirty or self._damage is not None or self._looked is None:
            return True
        return not self._watched and self._clock.monotonic() - self._looked > LOOK_AGAIN_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether texts were handed over to be embedded in bulk, and their vectors are still to be fetched."""
        return self._waiting > 0

    def mark_dirty(self) -> None:
        self._dirty = True

    def rely_on_watcher(self, watched: bool = True) -> None:  # noqa: FBT001, FBT002
        """Look at files only after `mark_dirty`, because somebody watches them."""
        self._watched = watched

    async def prepare(self) -> Sequence[NoteProblem]:
        """Write the notes that are derived from something else; what could not be written is told."""
        async with self._preparing:
            return () if self._corpus.prepare is no_derived_notes else await _blocking(self._corpus.prepare)

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: BatchUse = BatchUse.SKIP, progress: Progress = no_progress
    ) -> SyncReport:
        """Bring the index up to date. With `force` every file is read again and the index made anew.

        Where another process is at it and `wait` is off, nothing is done and the report says `busy`. `use` says how
        far to go with batches, where the embedder has such.
        """
        async with self._turn, _in_thread(self.store.writing(wait=wait)) as mine:
            if not mine:
                return SyncReport(await self._totals(), busy=True)
            damage, report = self._damage, None
            if damage is None:
                try:
                    report = await self._sync(force, use, progress)
                except IndexDamaged as error:
                    damage = error
            if report is None:
                log.warning("The memory index is made again: %s", damage)
                await _blocking(self.store.reset)
                self._damage = None
                report = await self._sync(False, use, progress)
            self._problems, self._reason = report.problems, report.reason or next(iter(report.notes), None)
            self._waiting = report.waiting
            return report

    async def _sync(self, force: bool, use: BatchUse, progress: Progress) -> SyncReport:  # noqa: FBT001
        looked, self._dirty = self._clock.monotonic(), False
        try:
            tally = SyncTally(problems=list(await self.prepare()))
            identity, present = self._identity(), await _blocking(self.store.identity)
            if present is None:
                await _blocking(self.store.adopt, identity)
            if force or present not in (None, identity):
                async with _in_thread(self.store.rebuilding(identity)) as fresh:
                    reason = await self._fill(fresh, tally, use, progress)
            else:
                reason = await self._fill(self.store, tally, use, progress)
            if reason and len(self._embedders) > 1:
                log.warning("%s Embedding goes on with %s.", reason, self._embedders[1].provider)
                del self._embedders[0]
                return await self._sync(False, use, progress)
            await _blocking(self.store.set_note, _SYNCED, self._clock.now().isoformat(timespec="seconds"))
        except BaseException:
            self._dirty = True
            raise
        self._looked = looked
        return SyncReport(
            await self._totals(),
            tally.changed,
            tally.removed,
            tally.embedded,
            tuple(tally.problems),
            reason,
            waiting=tally.waiting,
            notes=tuple(tally.notes),
        )

    async def _fill(self, store: IndexStore, tally: SyncTally, use: BatchUse, progress: Progress) -> str | None:
        now_ns = int(self._clock.now().timestamp() * 1e9)
        plan = await _blocking(plan_sync, store, self.library, now_ns)
        tally.problems += plan.problems
        done = 0
        for batch in group_files(plan):
            await _blocking(index_files, store, self._corpus, batch, plan.known, tally)
            done += len(batch)
            progress("reading notes", done, len(plan.suspects))
        await _blocking(finish_scan, store, plan, tally)
        embedder = self.embedder
        if embedder is None:
            return None
        return await embed_missing(embedder, store, self.store, self._clock, use, tally=tally, progress=progress)

    async def search(
        self, text: str, *, rules: SearchRules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult:
        """Find what the notes say about a question.

        With `refresh` changed files are taken in first, for at most half the time, and an index that turns out to be
        damaged is made again, however long that takes. Where the question cannot be embedded in time, words alone
        decide and the result says why.
        """
        end = self._clock.monotonic() + seconds
        if refresh and self.is_dirty:
            with anyio.move_on_after(seconds / 2):
                await self.sync(wait=False)
        query = parse_query(text)
        rules = rules or self.rules
        vector, reason = None, None
        if rules.weights.vector > 0:
            vector, reason = await self._embed_query(text, max(0.0, end - self._clock.monotonic()) * EMBED_SHARE)
        try:
            found, by_meaning = await self._search_now(query, vector, rules, end)
        except IndexDamaged as damage:
            self._damage = damage
            if not refresh:
                raise
            await self.sync()
            found, by_meaning = await self._search_now(query, vector, rules, self._clock.monotonic() + seconds)
        if vector is not None and not by_meaning:
            reason = "the index is being made again for another embedding model"
        return self._result(found.hits, "hybrid" if by_meaning else "text", reason or found.problem or self._reason)

    def _result(self, hits: tuple[MemoryHit, ...], mode: MatchMode, reason: str | None) -> SearchResult:
        embedder = self.embedder
        who = (embedder.provider, embedder.model) if embedder else (_NO_EMBEDDER, "")
        return SearchResult(hits, mode, *who, reason)

    async def recall(self, text: str, *, rules: SearchRules, seconds: float) -> SearchResult:
        """Find what the notes say about a message that waits for it: as they were indexed last, and at once."""
        if self._chunks == 0:  # as long as that is so, a message need not even be embedded
            with self.store.reading() as view:
                self._chunks = view.totals().chunks
            if self._chunks == 0:
                return self._result((), "text", self._reason)
        return await self.search(text, rules=rules, seconds=seconds, refresh=False)

    async def _search_now(
        self, query: MemoryQuery, vector: Vector | None, rules: SearchRules, end: float
    ) -> tuple[FoundHits, bool]:
        """What is found, and whether by meaning too: vectors of another model's making are not compared."""
        today = self._clock.now().date()

        def search() -> tuple[FoundHits, bool]:
            with self.store.reading(end) as view:
                comparable = vector is not None and view.identity() == self._identity()
                self._chunks = view.totals().chunks
                found = search_view(view, query, vector if comparable else None, rules, self._stemmer, today)
            return found, comparable

        # A message waits for this. A trip to a thread costs as much as searching a few notes, so those are searched
        # here; for all others one trip must do.
        if self._chunks is not None and self._chunks <= FEW_CHUNKS:
            return search()
        return await anyio.to_thread.run_sync(search)

    async def _embed_query(self, text: str, seconds: float) -> tuple[Vector | None, str | None]:
        embedder = self.embedder
        if embedder is None:
            return None, None
        try:
            with anyio.fail_after(seconds):
                return (await embed_checked(embedder, [text], query=True))[0], None
        except TimeoutError:
            return None, f"{embedder.provider}/{embedder.model} did not embed the question in time"
        except RetinueError as error:
            return None, str(error)

    async def read(self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS) -> Excerpt:
        """Lines of a note; raises a `StorageError` for anything that is not one."""
        document = await _blocking(self.library.read, path)
        return cut_excerpt(path, document.text, start, lines, self.provenance, max_chars)

    async def status(self) -> IndexStatus:
        embedder = self.embedder
        return IndexStatus(
            await self._totals(),
            embedder.provider if embedder else _NO_EMBEDDER,
            embedder.model if embedder else "",
            self.is_dirty,
            await _blocking(self.store.note, _SYNCED),
            self._problems,
        )

    async def aclose(self) -> None:
        for embedder in self._embedders:
            await embedder.aclose()
        self._stemmer.close()
        self.store.close()

    async def _totals(self) -> IndexTotals:
        def count() -> IndexTotals:
            with self.store.reading() as view:
                return view.totals()

        return await anyio.to_thread.run_sync(count)

    def _identity(self) -> IndexIdentity:
        embedder = self.embedder
        chunking = self._corpus.chunking
        who = (embedder.provider, embedder.model, embedder.key) if embedder else (_NO_EMBEDDER, "", "")
        return IndexIdentity(*who, chunking.tokens, chunking.overlap)


async def _blocking(work: Callable[..., T], *arguments: object) -> T:
    return await anyio.to_thread.run_sync(work, *arguments)


@asynccontextmanager
async def _in_thread(block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """A blocking context manager, entered and left in a worker thread."""
    value = await anyio.to_thread.run_sync(block.__enter__)
    try:
        yield value
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(block.__exit__, type(error), error, error.__traceback__)
        raise
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(block.__exit__, None, None, None)
