"""Answers kept for a while, so that the same question is not asked twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from retinue.core.clock import Clock

MAX_CACHE_ENTRIES = 64

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TimedCache(Generic[K, V]):
    """A small cache whose entries grow old."""

    def __init__(self, clock: Clock, keep_seconds: float) -> None:
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._entries: dict[K, tuple[float, V]] = {}

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value for `key`, loaded where there is none that is fresh."""
        now = self._clock.monotonic()
        self._entries = {k: entry for k, entry in self._entries.items() if now - entry[0] < self._keep_seconds}
        if key not in self._entries:
            value = await load()
            while len(self._entries) >= MAX_CACHE_ENTRIES:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = now, value
        return self._entries[key][1]
