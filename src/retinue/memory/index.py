"""The built-in memory backend: keeps an index of an agent's notes up to date and searches it."""

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
from retinue.memory.embed_texts import BatchUse, embed_missing
from retinue.memory.embedding import Embedder, embed_checked
from retinue.memory.notes import (
    MAX_CHARS,
    Corpus,
    Excerpt,
    Library,
    NoteProblem,
    Provenance,
    cut_excerpt,
    no_derived_notes,
)
from retinue.memory.scan import Progress, SyncTally, finish_scan, group_files, index_files, plan_sync
from retinue.memory.search.hybrid import FoundHits, search_view
from retinue.memory.search.query import MemoryQuery, focus_text, parse_query
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.words import Stemmer
from retinue.memory.standing import StandingFact, list_standing, recall_standing
from retinue.memory.store.protocol import IndexDamaged, IndexIdentity, IndexStore, IndexTotals, Vector

log = logging.getLogger(__name__)

EMBED_SHARE = 0.75
"""The share of a search's time limit for embedding the query; the rest is left for the text search."""
FEW_CHUNKS = 1_000
"""An index of this size is searched in about two milliseconds."""

LOOK_AGAIN_SECONDS = 2.0
_NO_EMBEDDER = "none"
_SYNCED = "synced"
_FALLBACK = "fallback"

T = TypeVar("T")


class MemoryIndex:
    """An index over a corpus of notes. Searches run concurrently; one sync runs at a time.

    `embedders` are tried in order: if one fails to embed notes, the next one is used from then on.
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
        """Damage that a search found; a sync would not necessarily find it."""
        self._watched = False
        self._looked: float | None = None
        self._problems: tuple[NoteProblem, ...] = ()
        self._reason: str | None = None
        self._fallback = ""
        """Why an earlier embedder is not used any more."""
        self._waiting = 0
        self._chunks: int | None = None
        """The number of chunks at the last search."""

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
        """Whether files may have changed since the last sync, or the index must be rebuilt."""
        if self._dirty or self._damage is not None or self._looked is None:
            return True
        return not self._watched and self._clock.monotonic() - self._looked > LOOK_AGAIN_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether texts were submitted in batches and their vectors are not stored yet."""
        return self._waiting > 0

    def mark_dirty(self) -> None:
        self._dirty = True

    def rely_on_watcher(self, watched: bool = True) -> None:  # noqa: FBT001, FBT002
        """Check files only after `mark_dirty`, because a watcher reports changes."""
        self._watched = watched

    async def prepare(self) -> Sequence[NoteProblem]:
        """Write the derived notes, such as exported sessions; return problems."""
        async with self._preparing:
            return () if self._corpus.prepare is no_derived_notes else await _blocking(self._corpus.prepare)

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: BatchUse = BatchUse.SKIP, progress: Progress = no_progress
    ) -> SyncReport:
        """Bring the index up to date. With `force` every file is read again and the index is rebuilt.

        If another process is syncing and `wait` is off, nothing is done and the report says `busy`. `use` says what to
        do with batches, if the embedder supports them.
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
                log.warning("Rebuilding the memory index: %s", damage)
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
                log.warning("%s Embedding continues with %s.", reason, self._embedders[1].provider)
                failed = self._embedders.pop(0)
                self._fallback = f"{failed.provider}/{failed.model} was replaced: {reason}"
                return await self._sync(False, use, progress)
            await _blocking(self.store.set_meta, _FALLBACK, self._fallback)
            await _blocking(self.store.set_meta, _SYNCED, self._clock.now().isoformat(timespec="seconds"))
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
        """Search the notes.

        With `refresh`, changed files are indexed first, for at most half the time limit, and a damaged index is
        rebuilt, however long that takes. If the query cannot be embedded in time, only the text search is used and the
        result says why.
        """
        end = self._clock.monotonic() + seconds
        if refresh and self.is_dirty:
            with anyio.move_on_after(seconds / 2):
                await self.sync(wait=False)
        query = parse_query(text)
        rules = rules or self.rules
        vector, reason = None, None
        if rules.weights.vector > 0:
            vector, reason = await self._embed_query(query, max(0.0, end - self._clock.monotonic()) * EMBED_SHARE)
        try:
            found, by_meaning = await self._search_now(query, vector, rules, end)
        except IndexDamaged as damage:
            self._damage = damage
            if not refresh:
                raise
            await self.sync()
            found, by_meaning = await self._search_now(query, vector, rules, self._clock.monotonic() + seconds)
        if vector is not None and not by_meaning:
            reason = "the index is being rebuilt for another embedding model"
        return self._result(found.hits, "hybrid" if by_meaning else "text", reason or found.problem or self._reason)

    def _result(self, hits: tuple[MemoryHit, ...], mode: MatchMode, reason: str | None) -> SearchResult:
        embedder = self.embedder
        who = (embedder.provider, embedder.model) if embedder else (_NO_EMBEDDER, "")
        return SearchResult(hits, mode, *who, reason)

    async def recall(self, text: str, *, rules: SearchRules, seconds: float) -> SearchResult:
        """Search the notes for a message that is waiting: without indexing changes first."""
        if self._chunks == 0:  # with an empty index, the message need not be embedded
            with self.store.reading() as view:
                self._chunks = view.totals().chunks
            if self._chunks == 0:
                return self._result((), "text", self._reason)
        return await self.search(text, rules=rules, seconds=seconds, refresh=False)

    async def _search_now(
        self, query: MemoryQuery, vector: Vector | None, rules: SearchRules, end: float
    ) -> tuple[FoundHits, bool]:
        """Return the hits, and whether vectors were used: those of another model are not comparable."""
        today = self._clock.now().date()

        def search() -> tuple[FoundHits, bool]:
            with self.store.reading(end) as view:
                comparable = vector is not None and view.identity() == self._identity()
                self._chunks = view.totals().chunks
                found = search_view(view, query, vector if comparable else None, rules, self._stemmer, today)
            return found, comparable

        # A message waits for this. Switching to a thread costs as much as searching a small index, so a small index is
        # searched in the event loop.
        if self._chunks is not None and self._chunks <= FEW_CHUNKS:
            return search()
        return await anyio.to_thread.run_sync(search)

    async def _embed_query(self, query: MemoryQuery, seconds: float) -> tuple[Vector | None, str | None]:
        embedder = self.embedder
        if embedder is None:
            return None, None
        # Larger models understand a whole question; an average of word vectors should be about its subject only.
        text = focus_text(query) if embedder.takes_lines else query.text
        try:
            with anyio.fail_after(seconds):
                return (await embed_checked(embedder, [text], query=True))[0], None
        except TimeoutError:
            return None, f"{embedder.provider}/{embedder.model} did not embed the query in time"
        except RetinueError as error:
            return None, str(error)

    async def read(self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS) -> Excerpt:
        """Return lines of a note; raise a `StorageError` if the path is not a note."""
        document = await _blocking(self.library.read, path)
        return cut_excerpt(path, document.text, start, lines, self.provenance, max_chars)

    async def status(self) -> IndexStatus:
        embedder = self.embedder
        who = (embedder.provider, embedder.model) if embedder else (_NO_EMBEDDER, "")
        fallback = await _blocking(self.store.get_meta, _FALLBACK) or None
        identity = await _blocking(self.store.identity) if fallback else None
        return IndexStatus(
            await self._totals(),
            *((identity.provider, identity.model) if identity else who),
            self.is_dirty,
            await _blocking(self.store.get_meta, _SYNCED),
            self._problems,
            fallback,
        )

    async def standing(self) -> list[StandingFact]:
        """Return the standing instructions and preferences of the owner in the notes."""

        def collect() -> list[StandingFact]:
            with self.store.reading() as view:
                return list_standing(view)

        return await anyio.to_thread.run_sync(collect)

    async def recall_standing(self, text: str, seconds: float) -> tuple[StandingFact, ...]:
        """Return the standing facts that govern a message that is waiting."""
        with self.store.reading() as view:
            if not view.find_standing(1):
                return ()
        query = parse_query(text)
        vector, _ = await self._embed_query(query, seconds * EMBED_SHARE)
        with self.store.reading() as view:
            comparable = vector is not None and view.identity() == self._identity()
            return recall_standing(view, query, vector if comparable else None, self._stemmer)

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
    """Enter and leave a blocking context manager in a worker thread."""
    value = await anyio.to_thread.run_sync(block.__enter__)
    try:
        yield value
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(block.__exit__, type(error), error, error.__traceback__)
        raise
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(block.__exit__, None, None, None)
