"""The memory of one agent: kept up to date with its notes, searched, read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.memory.documents import Library, Problem, Provenance, written_by_agent
from retinue.memory.embed import Embedder, embed_checked
from retinue.memory.errors import EmbeddingFailed, IndexDamaged
from retinue.memory.query import Query, parse_query
from retinue.memory.ranking import Hit
from retinue.memory.reading import Excerpt, cut_excerpt
from retinue.memory.search import Found, Rules, search_view
from retinue.memory.settings import ChunkingSettings
from retinue.memory.stems import Stemmer
from retinue.memory.store import Codes, IndexIdentity, MemoryStore, Totals, Unembedded, Vector
from retinue.memory.sync import Progress, Tally, batches, finish_scan, make_plan, put_batch
from retinue.memory.vectors import encode_lines

log = logging.getLogger(__name__)

SEARCH_SECONDS = 4.0
EMBED_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 2.0
_NO_EMBEDDER = "none"
_SYNCED = "synced"

T = TypeVar("T")
Mode = Literal["hybrid", "text"]


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What bringing an index up to date came to. `reason` says why texts have no vectors, where that is so."""

    totals: Totals
    changed: int = 0
    removed: int = 0
    embedded: int = 0
    problems: tuple[Problem, ...] = ()
    reason: str | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits, who found them, and what was not possible."""

    hits: tuple[Hit, ...]
    mode: Mode
    provider: str
    model: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """An index at a glance."""

    totals: Totals
    provider: str
    model: str
    dirty: bool
    synced_at: str | None
    problems: tuple[Problem, ...]


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


class MemoryIndex:
    """An index over a library of notes. Many may search at once; one at a time brings it up to date.

    `embedders` are tried in order: the next one is used from the moment that the one before fails to embed notes.
    `prepare` runs before files are looked at, to write those that are derived, such as exported sessions.
    """

    def __init__(
        self,
        store: MemoryStore,
        library: Library,
        clock: Clock,
        *,
        embedders: Sequence[Embedder] = (),
        rules: Rules | None = None,
        chunking: ChunkingSettings | None = None,
        provenance: Provenance = written_by_agent,
        prepare: Callable[[], Sequence[Problem]] | None = None,
    ) -> None:
        self.store = store
        self.library = library
        self.rules = rules or Rules()
        self._clock = clock
        self._embedders = list(embedders)
        self._chunking = chunking or ChunkingSettings()
        self._provenance = provenance
        self._prepare = prepare
        self._stemmer = Stemmer()
        self._turn = anyio.Lock()
        self._dirty = True
        self._watched = False
        self._looked: float | None = None
        self._problems: tuple[Problem, ...] = ()
        self._reason: str | None = None

    @property
    def embedder(self) -> Embedder | None:
        return self._embedders[0] if self._embedders else None

    @property
    def is_dirty(self) -> bool:
        """Whether files may have changed since they were last looked at."""
        if self._dirty or self._looked is None:
            return True
        return not self._watched and self._clock.monotonic() - self._looked > LOOK_AGAIN_SECONDS

    def mark_dirty(self) -> None:
        self._dirty = True

    def rely_on_watcher(self, watched: bool = True) -> None:  # noqa: FBT001, FBT002
        """Look at files only after `mark_dirty`, because somebody watches them."""
        self._watched = watched

    async def sync(self, *, force: bool = False, wait: bool = True, progress: Progress = _silent) -> SyncReport:
        """Bring the index up to date. With `force` every file is read again and the index made anew.

        Where another process is at it and `wait` is off, nothing is done and the report says `busy`.
        """
        async with self._turn, _in_thread(self.store.writing(wait=wait)) as mine:
            if not mine:
                return SyncReport(await self._totals(), busy=True)
            try:
                report = await self._sync(force, progress)
            except IndexDamaged as damage:
                log.warning("The memory index is made again: %s", damage)
                await anyio.to_thread.run_sync(self.store.reset)
                report = await self._sync(force, progress)
            self._problems, self._reason = report.problems, report.reason
            return report

    async def _sync(self, force: bool, progress: Progress) -> SyncReport:  # noqa: FBT001
        looked, self._dirty = self._clock.monotonic(), False
        try:
            prepared = await _blocking(self._prepare) if self._prepare else ()
            tally = Tally(problems=list(prepared))
            identity, present = self._identity(), await _blocking(self.store.identity)
            if present is None:
                await _blocking(self.store.adopt, identity)
            if force or present not in (None, identity):
                async with _in_thread(self.store.rebuilding(identity)) as fresh:
                    reason = await self._fill(fresh, tally, progress)
            else:
                reason = await self._fill(self.store, tally, progress)
            if reason and len(self._embedders) > 1:
                log.warning("%s Embedding goes on with %s.", reason, self._embedders[1].provider)
                del self._embedders[0]
                return await self._sync(False, progress)
            await _blocking(self.store.set_note, _SYNCED, self._clock.now().isoformat(timespec="seconds"))
        except BaseException:
            self._dirty = True
            raise
        self._looked = looked
        totals = await self._totals()
        return SyncReport(totals, tally.changed, tally.removed, tally.embedded, tuple(tally.problems), reason)

    async def _fill(self, store: MemoryStore, tally: Tally, progress: Progress) -> str | None:
        now_ns = int(self._clock.now().timestamp() * 1e9)
        plan = await _blocking(make_plan, store, self.library, now_ns)
        tally.problems += plan.problems
        done = 0
        for batch in batches(plan):
            await _blocking(put_batch, store, self.library, batch, plan.known, self._chunking, self._provenance, tally)
            done += len(batch)
            progress("reading notes", done, len(plan.suspects))
        await _blocking(finish_scan, store, plan, tally)
        return await self._embed_missing(store, tally, progress)

    async def _embed_missing(self, store: MemoryStore, tally: Tally, progress: Progress) -> str | None:
        embedder = self.embedder
        if embedder is None:
            return None
        dims: int | None = None
        missing = await _blocking(store.count_unembedded)
        done = 0
        while True:
            texts = await _blocking(store.unembedded, embedder.batch)
            if not texts:
                return None
            try:
                vectors = await self._embed(embedder, [item.whole for item in texts])
                if dims is not None and vectors.shape[1] != dims:
                    raise EmbeddingFailed(f"{embedder.provider}/{embedder.model} changed its dimensions.")
                lines = await self._embed_lines(embedder, texts) if embedder.takes_lines else {}
            except RetinueError as error:
                return str(error)
            dims = vectors.shape[1]
            by_hash = {item.hash: vector for item, vector in zip(texts, vectors, strict=True)}
            await _blocking(store.embed, by_hash, lines)
            tally.embedded += len(texts)
            done += len(texts)
            progress("embedding", done, max(done, missing))

    async def _embed_lines(self, embedder: Embedder, texts: Sequence[Unembedded]) -> dict[str, Codes]:
        """Vectors for the lines of texts: one line that matters is lost in the average of twenty that do not."""
        lines = [item.text.split("\n") for item in texts]
        codes = encode_lines(await self._embed(embedder, [line for each in lines for line in each]))
        found: dict[str, Codes] = {}
        at = 0
        for item, each in zip(texts, lines, strict=True):
            found[item.hash] = codes[at : at + len(each)]
            at += len(each)
        return found

    @staticmethod
    async def _embed(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> Vector:
        try:
            with anyio.fail_after(EMBED_SECONDS):
                return await embed_checked(embedder, texts, query=query)
        except TimeoutError:
            who = f"{embedder.provider}/{embedder.model}"
            raise EmbeddingFailed(f"The embedder {who} did not answer within {EMBED_SECONDS:.0f} s.") from None

    async def search(
        self, text: str, *, rules: Rules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult:
        """Find what the notes say about a question.

        With `refresh` changed files are taken in first, for at most half the time. Where the question cannot be
        embedded in time, words alone decide and the result says why.
        """
        end = self._clock.monotonic() + seconds
        if refresh and self.is_dirty:
            with anyio.move_on_after(seconds / 2):
                await self.sync(wait=False)
        query = parse_query(text)
        rules = rules or self.rules
        vector, reason = None, None
        if rules.weights.vector > 0:
            vector, reason = await self._embed_query(text, max(0.0, end - self._clock.monotonic()))
        try:
            found = await self._search_now(query, vector, rules, end)
        except IndexDamaged:
            await self.sync(wait=True)
            found = await self._search_now(query, vector, rules, end)
        embedder = self.embedder
        return SearchResult(
            found.hits,
            "hybrid" if vector is not None else "text",
            embedder.provider if embedder else _NO_EMBEDDER,
            embedder.model if embedder else "",
            reason or found.problem or self._reason,
        )

    async def _search_now(self, query: Query, vector: Vector | None, rules: Rules, end: float) -> Found:
        today = self._clock.now().date()

        def search() -> Found:
            with self.store.reading(end) as view:
                return search_view(view, query, vector, rules, self._stemmer, today)

        return await anyio.to_thread.run_sync(search)

    async def _embed_query(self, text: str, seconds: float) -> tuple[Vector | None, str | None]:
        embedder = self.embedder
        if embedder is None:
            return None, None
        if await _blocking(self.store.identity) != self._identity():
            return None, "the index is being made again for another embedding model"
        try:
            with anyio.fail_after(seconds):
                return (await self._embed(embedder, [text], query=True))[0], None
        except TimeoutError:
            return None, f"{embedder.provider}/{embedder.model} did not embed the question in time"
        except RetinueError as error:
            return None, str(error)

    async def read(self, path: str, start: int = 1, lines: int | None = None) -> Excerpt:
        """Lines of a note; raises a `StorageError` for anything that is not one."""
        document = await _blocking(self.library.read, path)
        return cut_excerpt(path, document.text, start, lines, self._provenance)

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
        chunking = self._chunking
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
