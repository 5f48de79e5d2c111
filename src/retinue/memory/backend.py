"""What every memory can do, whoever indexes and searches it."""

from __future__ import annotations

from typing import Protocol

from retinue.memory.bulk import Use
from retinue.memory.index import SEARCH_SECONDS, SearchResult, SyncReport, silent
from retinue.memory.reading import MAX_CHARS, Excerpt
from retinue.memory.search import Rules
from retinue.memory.sync import Progress


class Memory(Protocol):
    """The memory of one agent. `rules` hold for a search that brings none of its own."""

    @property
    def rules(self) -> Rules: ...

    def mark_dirty(self) -> None:
        """Say that a note changed."""
        ...

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: Use = Use.LEAVE, progress: Progress = silent
    ) -> SyncReport: ...

    async def search(
        self, text: str, *, rules: Rules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult: ...

    async def recall(self, text: str, *, rules: Rules, seconds: float) -> SearchResult: ...

    async def read(
        self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS
    ) -> Excerpt: ...
