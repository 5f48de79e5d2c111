"""What every memory can do, whoever indexes and searches it."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from retinue.memory.notes import NoteProblem
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.snippets import MAX_CHARS, Excerpt
from retinue.memory.store.protocol import IndexTotals
from retinue.memory.sync.batches import BatchUse
from retinue.memory.sync.scan import Progress

SEARCH_SECONDS = 4.0


MatchMode = Literal["hybrid", "text", "vector"]


Backend = Literal["builtin", "qmd"]


class SyncReport(Struct, frozen=True):
    """What bringing an index up to date came to. `reason` says why texts have no vectors, where that is so.

    `waiting` texts are in batches under way, and `notes` tell what went otherwise than asked for.
    """

    totals: IndexTotals
    changed: int = 0
    removed: int = 0
    embedded: int = 0
    problems: tuple[NoteProblem, ...] = ()
    reason: str | None = None
    busy: bool = False
    waiting: int = 0
    notes: tuple[str, ...] = ()
    backend: Backend = "builtin"
    instead_of: Backend | None = None


class SearchResult(Struct, frozen=True):
    """Hits, who found them, and what was not possible; `instead_of` is who should have found them."""

    hits: tuple[MemoryHit, ...]
    mode: MatchMode
    provider: str
    model: str
    reason: str | None = None
    backend: Backend = "builtin"
    instead_of: Backend | None = None


class IndexStatus(Struct, frozen=True):
    """An index at a glance."""

    totals: IndexTotals
    provider: str
    model: str
    dirty: bool
    synced_at: str | None
    problems: tuple[NoteProblem, ...]
    backend: Backend = "builtin"


def no_progress(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


class Memory(Protocol):
    """The memory of one agent. `rules` hold for a search that brings none of its own."""

    @property
    def rules(self) -> SearchRules: ...

    def mark_dirty(self) -> None:
        """Say that a note changed."""
        ...

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: BatchUse = BatchUse.SKIP, progress: Progress = no_progress
    ) -> SyncReport: ...

    async def search(
        self, text: str, *, rules: SearchRules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult: ...

    async def recall(self, text: str, *, rules: SearchRules, seconds: float) -> SearchResult: ...

    async def read(
        self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS
    ) -> Excerpt: ...
