"""An agent's memory served by the QMD program; where that fails, the built-in index answers and the result says so."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import StorageError
from retinue.memory.bulk import Use
from retinue.memory.documents import Library, Listing, Problem, Provenance, written_by_agent
from retinue.memory.errors import QmdFailed
from retinue.memory.index import SEARCH_SECONDS, Backend, MemoryIndex, Mode, SearchResult, SyncReport, silent
from retinue.memory.qmd.index import QmdIndex, SearchMode
from retinue.memory.qmd.results import make_hits
from retinue.memory.query import parse_query
from retinue.memory.ranking import Hit, Limits
from retinue.memory.reading import MAX_CHARS, Excerpt
from retinue.memory.search import Rules
from retinue.memory.settings import QmdLimits, QmdSettings
from retinue.memory.stems import Stemmer
from retinue.memory.store import Totals
from retinue.memory.sync import Progress
from retinue.storage.files.private import write_atomic

log = logging.getLogger(__name__)

RECALL_SECONDS = 1.0
"""The least time for which a message must wait that the program is asked: it takes a moment merely to start."""

MOST_FAILURES = 3
REST_SECONDS = 60.0
_SPARE = 2
_MODES: dict[SearchMode, Mode] = {"search": "text", "vsearch": "vector", "query": "hybrid"}


class QmdStatus(Struct, frozen=True):
    """The memory at a glance. `backend` is who answers: the program, or for `reason` the built-in index."""

    backend: Backend
    reason: str | None
    version: str | None
    mode: SearchMode
    collections: tuple[str, ...]
    files: int
    dirty: bool
    synced_at: str | None
    problems: tuple[Problem, ...]


class _Rests(QmdFailed):
    """The program was not asked, because it failed too often."""


class _Health(Struct):
    """How the program did lately. After several failures in a row it is left alone for a while."""

    reason: str | None = None
    failures: int = 0
    rests_until: float = 0.0

    def refuse_rest(self, now: float) -> None:
        if now < self.rests_until:
            raise _Rests(f"QMD failed {self.failures} times in a row and is left alone for a while: {self.reason}")

    def note_success(self) -> None:
        self.reason, self.failures, self.rests_until = None, 0, 0.0

    def note_failure(self, failure: QmdFailed, now: float) -> None:
        if isinstance(failure, _Rests):
            return
        self.reason, self.failures = str(failure), self.failures + 1
        if self.failures >= MOST_FAILURES:
            self.rests_until = now + REST_SECONDS


class QmdMemory:
    """Searches go to the program, each to one backend and never to both at once.

    The built-in index stands by. It is kept up to date only where messages recall from it, which is so unless they
    wait at least `RECALL_SECONDS`; else it takes in what changed at the moment that it has to stand in.
    """

    def __init__(
        self,
        index: QmdIndex,
        builtin: MemoryIndex,
        clock: Clock,
        settings: QmdSettings,
        *,
        provenance: Provenance = written_by_agent,
        keeps_builtin: bool = True,
    ) -> None:
        self.index = index
        self.builtin = builtin
        self.rules = replace(builtin.rules, limits=make_limits(settings.limits))
        self.keeps_builtin = keeps_builtin
        self._clock = clock
        self._settings = settings
        self._provenance = provenance
        self._stemmer = Stemmer()
        self._turn = anyio.Lock()
        self._health = _Health()
        self._not_updated: str | None = None
        self._dirty = True
        self._watched = False
        self._updated: float | None = None
        self._on_dirty: Callable[[], None] | None = None

    @property
    def library(self) -> Library:
        return self.index.library

    @property
    def is_dirty(self) -> bool:
        """Whether notes may have changed since the program looked at them."""
        if self._dirty or self._updated is None:
            return True
        pause = self._settings.update.debounce_ms / 1000
        return not self._watched and self._clock.monotonic() - self._updated > pause

    def mark_dirty(self) -> None:
        self._dirty = True
        self.builtin.mark_dirty()
        if self._on_dirty is not None:
            self._on_dirty()

    def rely_on_watcher(self, watched: bool = True) -> None:  # noqa: FBT001, FBT002
        """Look at files only after `mark_dirty`, because somebody watches them."""
        self._watched = watched
        self.builtin.rely_on_watcher(watched and self.keeps_builtin)

    def tell_changes(self, listener: Callable[[], None] | None) -> None:
        """Call somebody whenever a note changed."""
        self._on_dirty = listener

    async def update(self, *, force: bool = False) -> SyncReport:
        """Let the program take in what changed; raises `QmdFailed` where it cannot."""
        async with self._turn:
            self._dirty = False
            try:
                problems = tuple(await self.builtin.prepare())
                if force:
                    await self.index.discard()
                counts = await self.index.update()
            except BaseException as error:
                self._dirty = True
                self._not_updated = str(error) if isinstance(error, QmdFailed) else self._not_updated
                raise
            self._not_updated = None
            self._updated = self._clock.monotonic()
            await anyio.to_thread.run_sync(self._remember, counts.files)
        totals = Totals(counts.files, 0, 0, 0)
        return SyncReport(totals, counts.changed, counts.removed, problems=problems, backend="qmd")

    async def embed(self) -> None:
        """Let the program make vectors, where the way it searches needs them; raises `QmdFailed` where it cannot."""
        if not self.index.by_words:
            async with self._turn:
                await self.index.embed()

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: Use = Use.LEAVE, progress: Progress = silent
    ) -> SyncReport:
        """Bring the memory up to date; where the program cannot, the built-in index is, and the report says why.

        Vectors take long, so a sync that somebody waits for leaves them to another.
        """
        reason = None
        async with anyio.create_task_group() as tasks:
            if self.keeps_builtin:
                tasks.start_soon(self.sync_builtin)
            try:
                report = await self.update(force=force)
                if use is not Use.LEAVE:
                    await self.embed()
            except QmdFailed as failure:
                reason = str(failure)
        if reason is None:
            return report
        report = await self.builtin.sync(force=force, wait=wait, use=use, progress=progress)
        return replace(report, reason=_stands_in(reason, report.reason), instead_of="qmd")

    async def sync_builtin(self) -> None:
        """Bring the index that stands by up to date; what prevents that is logged."""
        try:
            await self.builtin.sync(wait=False)
        except StorageError as error:
            log.warning("the built-in index that stands by could not be brought up to date: %s", error)

    async def search(
        self, text: str, *, rules: Rules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult:
        """Find what the notes say about a question. `seconds` are for the built-in index where it has to stand in."""
        limit = self._settings.limits.timeout_ms / 1000
        return await self._search(text, rules or self.rules, limit, seconds, refresh=refresh)

    async def recall(self, text: str, *, rules: Rules, seconds: float) -> SearchResult:
        """Find what the notes say about a message that waits: in the built-in index, unless it waits long enough."""
        if seconds < RECALL_SECONDS:
            return await self.builtin.search(text, rules=self._for_builtin(rules), seconds=seconds, refresh=False)
        return await self._search(text, rules, seconds / 2, seconds / 2, refresh=False)

    async def _search(self, text: str, rules: Rules, limit: float, spare: float, *, refresh: bool) -> SearchResult:
        now = self._clock.monotonic()
        try:
            self._health.refuse_rest(now)
            hits = await self._ask(text, rules, limit, refresh=refresh)
        except QmdFailed as failure:
            self._health.note_failure(failure, now)
            # Whatever is wrong with the collections, the next update puts right.
            self._dirty = True
            found = await self.builtin.search(text, rules=self._for_builtin(rules), seconds=spare)
            return replace(found, reason=_stands_in(str(failure), found.reason), instead_of="qmd")
        self._health.note_success()
        mode = self.index.mode
        return SearchResult(hits, _MODES[mode], "qmd", mode, backend="qmd")

    async def _ask(self, text: str, rules: Rules, limit: float, *, refresh: bool) -> tuple[Hit, ...]:
        end = anyio.current_time() + limit
        query = parse_query(text)
        if query.is_empty:
            return ()
        if (refresh and self.is_dirty) or not await self.index.collections():
            with anyio.move_on_after(limit / 2):
                await self.update()
        most = rules.limits.max_results * _SPARE
        leads = await self.index.search(query, most, max(0.01, end - anyio.current_time()))
        collections = await self.index.collections()
        return await anyio.to_thread.run_sync(
            lambda: make_hits(
                leads,
                query,
                rules,
                collections,
                self.library,
                provenance=self._provenance,
                stemmer=self._stemmer,
                by_words=self.index.by_words,
            )
        )

    async def read(self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS) -> Excerpt:
        """Lines of a note; raises a `StorageError` for anything that is not one."""
        return await self.builtin.read(path, start, lines, max_chars=max_chars)

    async def status(self) -> QmdStatus:
        """Who would answer now: the program is asked for its version."""
        version: str | None = None
        names: tuple[str, ...] = ()
        reason = self._health.reason or self._not_updated
        try:
            version = await self.index.version()
            names = tuple(await self.index.collections())
        except QmdFailed as failure:
            reason = str(failure)
        synced_at, files = await anyio.to_thread.run_sync(self._recollect)
        listing = await anyio.to_thread.run_sync(self.library.list)
        return QmdStatus(
            "builtin" if reason else "qmd",
            reason,
            version,
            self.index.mode,
            names,
            files,
            _has_changed(listing, synced_at, files),
            synced_at.isoformat(timespec="seconds") if synced_at else None,
            listing.problems,
        )

    async def aclose(self) -> None:
        self._stemmer.close()

    def _for_builtin(self, rules: Rules) -> Rules:
        """The same question put to the built-in index, whose scores have another least one."""
        own = self.builtin.rules
        limits = replace(rules.limits, min_score=rules.limits.min_score or own.limits.min_score)
        return replace(own, limits=limits, origins=rules.origins, sources=rules.sources)

    def _remember(self, files: int) -> None:
        state = {"updatedAt": self._clock.now().isoformat(), "files": files}
        write_atomic(self.index.program.folders.home / "state.json", json.dumps(state).encode(), synced=False)

    def _recollect(self) -> tuple[datetime | None, int]:
        try:
            state = json.loads((self.index.program.folders.home / "state.json").read_bytes())
            return datetime.fromisoformat(state["updatedAt"]), int(state["files"])
        except (OSError, ValueError, TypeError, KeyError):
            # Derived: the next update writes it again.
            return None, 0


def make_limits(limits: QmdLimits) -> Limits:
    """How much a search gives back. The program's scores have no least one that would suit every question."""
    return Limits(limits.max_results, 0.0, limits.max_snippet_chars, limits.max_injected_chars)


def _stands_in(failure: str, also: str | None) -> str:
    told = f"{failure} The built-in index answered instead."
    return f"{told} {also}" if also else told


def _has_changed(listing: Listing, since: datetime | None, files: int) -> bool:
    if since is None or len(listing.files) != files:
        return True
    return any(file.mtime_ns > since.timestamp() * 1e9 for file in listing.files)
