"""The QMD memory backend; if the program fails, the built-in index answers and the result says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import StorageError
from retinue.core.keys import AgentId
from retinue.memory.backend import SEARCH_SECONDS, MatchMode, MemoryParts, SearchResult, SyncReport, no_progress
from retinue.memory.embed_texts import BatchUse
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import MAX_CHARS, Excerpt, Library, NoteListing, NoteProblem, Provenance, written_by_agent
from retinue.memory.qmd.collections import clean_name
from retinue.memory.qmd.index import QmdIndex, SearchMode
from retinue.memory.qmd.program import QmdFailed
from retinue.memory.qmd.results import make_hits
from retinue.memory.scan import Progress
from retinue.memory.search.query import parse_query
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchLimits, SearchRules
from retinue.memory.search.words import Stemmer
from retinue.memory.settings import QmdLimits, QmdSettings
from retinue.memory.store.protocol import IndexTotals
from retinue.storage.files.descriptors import write_atomic

log = logging.getLogger(__name__)

RECALL_SECONDS = 1.0
"""A recall with less time uses the built-in index, because starting the program takes a moment."""

MAX_FAILURES = 3
PAUSE_SECONDS = 60.0
_SPARE = 2
_COLLECTION_MARKS = ("qmd://", "qmd/")
_STATE = "state.json"
_MODES: dict[SearchMode, MatchMode] = {"search": "text", "vsearch": "vector", "query": "hybrid"}


class QmdStatus(Struct, frozen=True):
    """The status of the memory. `backend` is the one in use; `reason` says why it is the built-in index."""

    backend: str
    reason: str | None
    version: str | None
    mode: SearchMode
    collections: tuple[str, ...]
    files: int
    dirty: bool
    synced_at: str | None
    problems: tuple[NoteProblem, ...]


class _LastUpdate(Struct, frozen=True, rename="camel"):
    """The time of the last update, None if there was none, and the number of files at that time."""

    updated_at: datetime | None = None
    files: int = 0


class _Paused(QmdFailed):
    """The program was not run, because it failed too often."""


class _Health(Struct):
    """A circuit breaker: after several consecutive failures the program is not run for a while."""

    reason: str | None = None
    failures: int = 0
    paused_until: float = 0.0

    def require_active(self, now: float) -> None:
        if now < self.paused_until:
            raise _Paused(f"QMD failed {self.failures} times in a row and is paused: {self.reason}")

    def record_success(self) -> None:
        self.reason, self.failures, self.paused_until = None, 0, 0.0

    def record_failure(self, failure: QmdFailed, now: float) -> None:
        if isinstance(failure, _Paused):
            return
        self.reason, self.failures = str(failure), self.failures + 1
        if self.failures >= MAX_FAILURES:
            self.paused_until = now + PAUSE_SECONDS


class QmdMemory:
    """Searches with the QMD program, and with the built-in index if the program fails.

    The built-in index is kept up to date only if recall uses it, that is, if the time limit of recall is below
    `RECALL_SECONDS`; otherwise it indexes changes when it replaces the program.
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
        """Whether notes may have changed since the last update."""
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
        """Check files only after `mark_dirty`, because a watcher reports changes."""
        self._watched = watched
        self.builtin.rely_on_watcher(watched and self.keeps_builtin)

    def set_change_listener(self, listener: Callable[[], None] | None) -> None:
        """Set the function that is called when a note changed."""
        self._on_dirty = listener

    async def update(self, *, force: bool = False) -> SyncReport:
        """Run an update of the program; raise `QmdFailed` on failure."""
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
            await anyio.to_thread.run_sync(self._write_last_update, counts.files)
        totals = IndexTotals(counts.files, 0, 0, 0)
        return SyncReport(totals, counts.changed, counts.removed, problems=problems, backend="qmd")

    async def embed(self) -> None:
        """Embed with the program, if its search mode needs vectors; raise `QmdFailed` on failure."""
        if not self.index.by_words:
            async with self._turn:
                await self.index.embed()

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: BatchUse = BatchUse.SKIP, progress: Progress = no_progress
    ) -> SyncReport:
        """Update the QMD index, or the built-in index if the program fails; the report says why.

        Embedding takes long, so it is skipped with `BatchUse.SKIP`.
        """
        reason = None
        async with anyio.create_task_group() as tasks:
            if self.keeps_builtin:
                tasks.start_soon(self.sync_builtin)
            try:
                report = await self.update(force=force)
                if use is not BatchUse.SKIP:
                    await self.embed()
            except QmdFailed as failure:
                reason = str(failure)
        if reason is None:
            return report
        report = await self.builtin.sync(force=force, wait=wait, use=use, progress=progress)
        return replace(report, reason=_fallback_reason(reason, report.reason), instead_of="qmd")

    async def sync_builtin(self) -> None:
        """Sync the built-in index; a failure is logged."""
        try:
            await self.builtin.sync(wait=False)
        except StorageError as error:
            log.warning("The built-in index could not be updated: %s", error)

    async def search(
        self, text: str, *, rules: SearchRules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult:
        """Search the notes. `seconds` is the time limit of the built-in index, if the program fails."""
        limit = self._settings.limits.timeout_ms / 1000
        return await self._search(text, rules or self.rules, limit, seconds, refresh=refresh)

    async def recall(self, text: str, *, rules: SearchRules, seconds: float) -> SearchResult:
        """Search the notes for a message that is waiting: in the built-in index, unless there is time for QMD."""
        if seconds < RECALL_SECONDS:
            return await self.builtin.search(text, rules=self._for_builtin(rules), seconds=seconds, refresh=False)
        return await self._search(text, rules, seconds / 2, seconds / 2, refresh=False)

    async def _search(
        self, text: str, rules: SearchRules, limit: float, spare: float, *, refresh: bool
    ) -> SearchResult:
        now = self._clock.monotonic()
        try:
            self._health.require_active(now)
            hits = await self._ask(text, rules, limit, refresh=refresh)
        except QmdFailed as failure:
            self._health.record_failure(failure, now)
            # The next update repairs the collections, if they are the cause.
            self._dirty = True
            found = await self.builtin.search(text, rules=self._for_builtin(rules), seconds=spare)
            return replace(found, reason=_fallback_reason(str(failure), found.reason), instead_of="qmd")
        self._health.record_success()
        mode = self.index.mode
        return SearchResult(hits, _MODES[mode], "qmd", mode, backend="qmd")

    async def _ask(self, text: str, rules: SearchRules, limit: float, *, refresh: bool) -> tuple[MemoryHit, ...]:
        end = anyio.current_time() + limit
        query = parse_query(text)
        if query.is_empty:
            return ()
        if (refresh and self.is_dirty) or not await self.index.collections():
            with anyio.move_on_after(limit / 2) as deadline:
                await self.update()
            if deadline.cancelled_caught and not await self.index.collections():
                raise QmdFailed(f"QMD did not index the notes within {limit / 2:g} s.")
        most = rules.limits.max_results * _SPARE
        matches = await self.index.search(query, most, max(0.01, end - anyio.current_time()))
        collections = await self.index.collections()
        return await anyio.to_thread.run_sync(
            lambda: make_hits(
                matches,
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
        """Return lines of a note; raise a `StorageError` if the path is not a note.

        `qmd/<collection>/<path>` and `qmd://<collection>/<path>` name a file by the program's collection.
        """
        note = await self._find_note(path)
        return await self.builtin.read(note, start, lines, max_chars=max_chars)

    async def _find_note(self, path: str) -> str:
        inside = next((path.removeprefix(mark) for mark in _COLLECTION_MARKS if path.startswith(mark)), None)
        if inside is None:
            return path
        name, _, relative = inside.partition("/")
        wanted = {name, f"{name}-{clean_name(self.index.agent)}"}
        named = (collection for collection in await self.index.wanted() if collection.name in wanted)
        collection = next(named, None)
        return collection.note(relative) if collection else path

    async def status(self) -> QmdStatus:
        """Return the status; this runs the program to get its version."""
        version: str | None = None
        names: tuple[str, ...] = ()
        reason = self._health.reason or self._not_updated
        try:
            version = await self.index.version()
            names = tuple(await self.index.collections())
        except QmdFailed as failure:
            reason = str(failure)
        last = await anyio.to_thread.run_sync(self._read_last_update)
        listing = await anyio.to_thread.run_sync(self.library.list)
        return QmdStatus(
            "builtin" if reason else "qmd",
            reason,
            version,
            self.index.mode,
            names,
            last.files,
            _has_changed(listing, last),
            last.updated_at.isoformat(timespec="seconds") if last.updated_at else None,
            listing.problems,
        )

    async def aclose(self) -> None:
        self._stemmer.close()

    def _for_builtin(self, rules: SearchRules) -> SearchRules:
        """Return the rules for the built-in index, whose scores have another minimum."""
        own = self.builtin.rules
        limits = replace(rules.limits, min_score=rules.limits.min_score or own.limits.min_score)
        return replace(own, limits=limits, farthest=rules.farthest, sources=rules.sources)

    def _write_last_update(self, files: int) -> None:
        state = _LastUpdate(self._clock.now(), files)
        write_atomic(self.index.program.folders.home / _STATE, msgspec.json.encode(state), synced=False)

    def _read_last_update(self) -> _LastUpdate:
        try:
            return msgspec.json.decode((self.index.program.folders.home / _STATE).read_bytes(), type=_LastUpdate)
        except (OSError, ValueError):
            # The state is derived: the next update writes it again.
            return _LastUpdate()


def make_limits(limits: QmdLimits) -> SearchLimits:
    """Return the search limits. No minimum score of the program suits every query."""
    return SearchLimits(limits.max_results, 0.0, limits.max_snippet_chars, limits.max_injected_chars)


def _fallback_reason(failure: str, also: str | None) -> str:
    reason = f"{failure} The built-in index was used instead."
    return f"{reason} {also}" if also else reason


def _has_changed(listing: NoteListing, last: _LastUpdate) -> bool:
    if last.updated_at is None or len(listing.files) != last.files:
        return True
    since_ns = last.updated_at.timestamp() * 1e9
    return any(file.mtime_ns > since_ns for file in listing.files)


def make_memory(parts: MemoryParts) -> QmdMemory:
    """Return the memory of an agent, with the program as `memory.qmd` describes it."""
    from retinue.memory.qmd.program import QmdFolders, QmdProgram

    settings, recall = parts.settings.qmd, parts.recall_seconds
    folders = QmdFolders(parts.data, parts.models / "qmd")
    program = QmdProgram(settings.command, folders, parts.environment, uses_models=settings.search_mode != "search")
    return QmdMemory(
        QmdIndex(program, parts.builtin.library, AgentId(parts.agent), settings.search_mode, settings.update),
        parts.builtin,
        parts.clock,
        settings,
        provenance=parts.builtin.provenance,
        keeps_builtin=recall is not None and recall < RECALL_SECONDS,
    )
