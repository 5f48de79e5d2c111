"""The memory of one agent: kept up to date with its notes, searched, read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Literal, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.memory.bulk import Use
from retinue.memory.corpus import Corpus, nothing_derived
from retinue.memory.documents import Library, Problem, Provenance
from retinue.memory.embed import Embedder, embed_checked
from retinue.memory.errors import IndexDamaged
from retinue.memory.missing import embed_missing
from retinue.memory.query import Query, parse_query
from retinue.memory.ranking import Hit
from retinue.memory.reading import MAX_CHARS, Excerpt, cut_excerpt
from retinue.memory.search import Found, Rules, search_view
from retinue.memory.stems import Stemmer
from retinue.memory.store import IndexIdentity, MemoryStore, Totals, Vector
from retinue.memory.sync import Progress, Tally, batches, finish_scan, make_plan, put_batch

log = logging.getLogger(__name__)

SEARCH_SECONDS = 4.0
EMBED_SHARE = 0.75
"""How much of a search's time its embedding may take: words must still be looked up where that hangs."""
FEW_CHUNKS = 1_000
"""Searched in about two milliseconds."""

LOOK_AGAIN_SECONDS = 2.0
_NO_EMBEDDER = "none"
_SYNCED = "synced"

T = TypeVar("T")
Mode = Literal["hybrid", "text", "vector"]
Backend = Literal["builtin", "qmd"]


class SyncReport(Struct, frozen=True):
    """What bringing an index up to date came to. `reason` says why texts have no vectors, where that is so.

    `waiting` texts are in batches under way, and `notes` tell what went otherwise than asked for.
    """

    totals: Totals
    changed: int = 0
    removed: int = 0
    embedded: int = 0
    problems: tuple[Problem, ...] = ()
    reason: str | None = None
    busy: bool = False
    waiting: int = 0
    notes: tuple[str, ...] = ()
    backend: Backend = "builtin"
    instead_of: Backend | None = None


class SearchResult(Struct, frozen=True):
    """Hits, who found them, and what was not possible; `instead_of` is who should have found them."""

    hits: tuple[Hit, ...]
    mode: Mode
    provider: str
    model: str
    reason: str | None = None
    backend: Backend = "builtin"
    instead_of: Backend | None = None


class Status(Struct, frozen=True):
    """An index at a glance."""

    totals: Totals
    provider: str
    model: str
    dirty: bool
    synced_at: str | None
    problems: tuple[Problem, ...]
    backend: Backend = "builtin"


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


class MemoryIndex:
    """An index over a corpus of notes. Many may search at once; one at a time brings it up to date.

    `embedders` are tried in order: the next one is used from the moment that the one before fails to embed notes.
    """

    def __init__(
        self,
        store: MemoryStore,
        corpus: Corpus,
        clock: Clock,
        *,
        embedders: Sequence[Embedder] = (),
        rules: Rules | None = None,
    ) -> None:
        self.store = store
        self.rules = rules or Rules()
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
        self._problems: tuple[Problem, ...] = ()
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

    async def prepare(self) -> Sequence[Problem]:
        """Write the notes that are derived from something else; what could not be written is told."""
        async with self._preparing:
            return () if self._corpus.prepare is nothing_derived else await _blocking(self._corpus.prepare)

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: Use = Use.LEAVE, progress: Progress = silent
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

    async def _sync(self, force: bool, use: Use, progress: Progress) -> SyncReport:  # noqa: FBT001
        looked, self._dirty = self._clock.monotonic(), False
        try:
            tally = Tally(problems=list(await self.prepare()))
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

    async def _fill(self, store: MemoryStore, tally: Tally, use: Use, progress: Progress) -> str | None:
        now_ns = int(self._clock.now().timestamp() * 1e9)
        plan = await _blocking(make_plan, store, self.library, now_ns)
        tally.problems += plan.problems
        done = 0
        for batch in batches(plan):
            await _blocking(put_batch, store, self._corpus, batch, plan.known, tally)
            done += len(batch)
            progress("reading notes", done, len(plan.suspects))
        await _blocking(finish_scan, store, plan, tally)
        embedder = self.embedder
        if embedder is None:
            return None
        return await embed_missing(embedder, store, self.store, self._clock, use, tally=tally, progress=progress)

    async def search(
        self, text: str, *, rules: Rules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
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

    def _result(self, hits: tuple[Hit, ...], mode: Mode, reason: str | None) -> SearchResult:
        embedder = self.embedder
        who = (embedder.provider, embedder.model) if embedder else (_NO_EMBEDDER, "")
        return SearchResult(hits, mode, *who, reason)

    async def recall(self, text: str, *, rules: Rules, seconds: float) -> SearchResult:
        """Find what the notes say about a message that waits for it: as they were indexed last, and at once."""
        if self._chunks == 0:  # as long as that is so, a message need not even be embedded
            with self.store.reading() as view:
                self._chunks = view.totals().chunks
            if self._chunks == 0:
                return self._result((), "text", self._reason)
        return await self.search(text, rules=rules, seconds=seconds, refresh=False)

    async def _search_now(self, query: Query, vector: Vector | None, rules: Rules, end: float) -> tuple[Found, bool]:
        """What is found, and whether by meaning too: vectors of another model's making are not compared."""
        today = self._clock.now().date()

        def search() -> tuple[Found, bool]:
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

    async def status(self) -> Status:
        embedder = self.embedder
        return Status(
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

    async def _totals(self) -> Totals:
        def count() -> Totals:
            with self.store.reading() as view:
                return view.totals()

        return await anyio.to_thread.run_sync(count)

    def _identity(self) -> IndexIdentity:
        embedder = self.embedder
        chunking = self._corpus.chunking
        who = (embedder.provider, embedder.model, embedder.key) if embedder else (_NO_EMBEDDER, "", "")
        return IndexIdentity(*who, chunking.tokens, chunking.overlap)


def narrowed(rules: Rules, *, max_results: int | None = None, min_score: float | None = None) -> Rules:
    """The rules with what one search asks for."""
    limits = rules.limits
    if max_results is not None:
        limits = replace(limits, max_results=max_results)
    if min_score is not None:
        limits = replace(limits, min_score=min_score)
    return replace(rules, limits=limits)


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
