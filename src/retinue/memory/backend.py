"""The interface of a memory backend, and the values it returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from retinue.memory.embed_texts import BatchUse
from retinue.memory.embedding import BuiltInEmbedder
from retinue.memory.notes import MAX_CHARS, Excerpt, NoteProblem
from retinue.memory.scan import Progress
from retinue.memory.search.query import find_dates
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchRules
from retinue.memory.store.protocol import IndexTotals

if TYPE_CHECKING:
    from retinue.core.clock import Clock
    from retinue.memory.index import MemoryIndex
    from retinue.memory.settings import MemorySettings

SEARCH_SECONDS = 4.0

MatchMode = Literal["hybrid", "text", "vector"]


class SyncReport(Struct, frozen=True):
    """The result of a sync. `reason` says why texts have no vectors, if that is the case.

    `waiting` is the number of texts in running batches; `notes` are messages about deviations from the configuration.
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
    backend: str = "builtin"
    instead_of: str | None = None


class SearchResult(Struct, frozen=True):
    """The hits of a search and the backend that found them; `instead_of` is the configured backend, if it failed."""

    hits: tuple[MemoryHit, ...]
    mode: MatchMode
    provider: str
    model: str
    reason: str | None = None
    backend: str = "builtin"
    instead_of: str | None = None


NEAR_ENOUGH = 0.28
"""Cosine of the built-in model below which no hit is about the message; docs/memory.md tells what that costs."""


def is_about(result: SearchResult, message: str) -> bool:
    """Return whether any hit is near enough to a message to be added to it unasked.

    Only cosines of the built-in model are compared with a fixed number: those of other models have other scales. An
    exact match and the note of a day that the message names are always near enough.
    """
    if result.mode != "hybrid" or (result.provider, result.model) != (BuiltInEmbedder.provider, BuiltInEmbedder.model):
        return True
    nearest = max((max(hit.parts.signals.chunk, hit.parts.signals.line) for hit in result.hits), default=0.0)
    return nearest >= NEAR_ENOUGH or any(hit.parts.exact for hit in result.hits) or any(find_dates(message))


class IndexStatus(Struct, frozen=True):
    """The status of an index."""

    totals: IndexTotals
    provider: str
    model: str
    dirty: bool
    synced_at: str | None
    problems: tuple[NoteProblem, ...]
    fallback: str | None = None
    """Why the notes were embedded by another provider than the configured one."""
    backend: str = "builtin"


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


class MemoryParts(Struct, frozen=True):
    """What a memory backend of an agent is made of."""

    agent: str
    builtin: MemoryIndex
    """The built-in index over the same notes; it answers if the backend fails, and can be called by it."""
    settings: MemorySettings
    clock: Clock
    environment: Mapping[str, str]
    data: Path
    """A folder for the backend's own files; the backend creates it."""
    models: Path
    """The folder of local models."""
    recall_seconds: float | None
    """How long a recall before a turn may take; None if it is off."""


class Memory(Protocol):
    """The memory of one agent. `rules` are the default rules of a search."""

    @property
    def rules(self) -> SearchRules: ...

    def mark_dirty(self) -> None:
        """Record that a note changed."""
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

    async def aclose(self) -> None: ...
