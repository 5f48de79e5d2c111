"""The memory backend of a plugin, with the built-in index as its fallback."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from msgspec.structs import replace

from retinue.memory.backend import SEARCH_SECONDS, Memory, SearchResult, SyncReport, no_progress
from retinue.memory.embed_texts import BatchUse
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import MAX_CHARS, Excerpt
from retinue.memory.scan import Progress
from retinue.memory.search.rules import SearchRules

log = logging.getLogger(__name__)

SYNC_SECONDS = 300.0
READ_SECONDS = 15.0
CLOSE_SECONDS = 5.0

T = TypeVar("T")


class FallbackMemory:
    """Asks a plugin's memory, and the built-in index if that raises, exits or takes too long."""

    def __init__(self, plugin: Memory, builtin: MemoryIndex, name: str) -> None:
        self._plugin = plugin
        self.builtin = builtin
        self.name = name

    @property
    def rules(self) -> SearchRules:
        return self.builtin.rules

    def mark_dirty(self) -> None:
        self.builtin.mark_dirty()
        try:
            self._plugin.mark_dirty()
        except (Exception, SystemExit):  # border: a plugin is foreign code, and may also exit
            log.exception("the memory '%s' could not note a change", self.name)

    async def sync(
        self, *, force: bool = False, wait: bool = True, use: BatchUse = BatchUse.SKIP, progress: Progress = no_progress
    ) -> SyncReport:
        async def ask() -> SyncReport:
            return await self._plugin.sync(force=force, wait=wait, use=use, progress=progress)

        async def fall_back() -> SyncReport:
            found = await self.builtin.sync(force=force, wait=wait, use=use, progress=progress)
            return replace(found, instead_of=self.name)

        return await self._ask(ask, fall_back, SyncReport, SYNC_SECONDS)

    async def search(
        self, text: str, *, rules: SearchRules | None = None, seconds: float = SEARCH_SECONDS, refresh: bool = True
    ) -> SearchResult:
        async def ask() -> SearchResult:
            return await self._plugin.search(text, rules=rules, seconds=seconds, refresh=refresh)

        async def fall_back() -> SearchResult:
            found = await self.builtin.search(text, rules=rules, seconds=seconds, refresh=refresh)
            return self._mark(found)

        return await self._ask(ask, fall_back, SearchResult, seconds)

    async def recall(self, text: str, *, rules: SearchRules, seconds: float) -> SearchResult:
        async def ask() -> SearchResult:
            return await self._plugin.recall(text, rules=rules, seconds=seconds)

        async def fall_back() -> SearchResult:
            return self._mark(await self.builtin.recall(text, rules=rules, seconds=seconds))

        return await self._ask(ask, fall_back, SearchResult, seconds)

    async def read(self, path: str, start: int = 1, lines: int | None = None, *, max_chars: int = MAX_CHARS) -> Excerpt:
        async def ask() -> Excerpt:
            return await self._plugin.read(path, start, lines, max_chars=max_chars)

        async def fall_back() -> Excerpt:
            return await self.builtin.read(path, start, lines, max_chars=max_chars)

        return await self._ask(ask, fall_back, Excerpt, READ_SECONDS)

    async def aclose(self) -> None:
        """Close the plugin's memory; the built-in index is closed by its owner."""
        try:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._plugin.aclose()
        except (Exception, SystemExit):  # border: a plugin is foreign code, and may also exit
            log.exception("the memory '%s' could not be closed", self.name)

    def _mark(self, found: SearchResult) -> SearchResult:
        reason = f"The memory '{self.name}' failed, so the built-in index was searched; the log has the error."
        return replace(found, instead_of=self.name, reason=reason)

    async def _ask(
        self,
        ask: Callable[[], Awaitable[T]],
        fall_back: Callable[[], Awaitable[T]],
        expected: type[T],
        seconds: float,
    ) -> T:
        try:
            with anyio.fail_after(seconds):
                found = await ask()
        except (Exception, SystemExit):  # border: a plugin is foreign code, and may also exit
            log.exception("the memory '%s' failed; the built-in index is used", self.name)
            return await fall_back()
        if not isinstance(found, expected):
            log.warning("the memory '%s' returned %s; the built-in index is used", self.name, type(found).__name__)
            return await fall_back()
        return found
