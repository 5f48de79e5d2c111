"""Background tasks that keep the index up to date: file watcher, interval, batches."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import anyio

from retinue.core.errors import StorageError
from retinue.memory.index import MemoryIndex
from retinue.memory.sync.batches import BatchUse

log = logging.getLogger(__name__)

BATCH_LOOK_SECONDS = 60.0
_LEAVES_WITHIN_MS = 250
"""How often the watcher's thread checks for cancellation; cancelling waits that long."""

_IGNORED = frozenset({".git", "node_modules", "__pycache__"})


async def watch_notes(index: MemoryIndex, *, debounce_ms: int, on_change: Callable[[], None] | None = None) -> None:
    """Sync the index after each burst of changes, until cancelled.

    Meanwhile a search checks files only after a change. If folders cannot be watched, searches check files themselves.
    """

    async def take_in() -> None:
        index.mark_dirty()
        await _sync(index)
        if on_change:
            on_change()

    index.rely_on_watcher()
    try:
        await watch_folders(index.library.folders, debounce_ms, take_in)
    finally:
        index.rely_on_watcher(watched=False)


async def watch_folders(folders: Iterable[Path], debounce_ms: int, noticed: Callable[[], Awaitable[None]]) -> None:
    """Call `noticed` after each burst of changes until cancelled; return at once if folders cannot be watched."""
    from watchfiles import DefaultFilter, awatch

    class Notes(DefaultFilter):
        def __call__(self, change: object, path: str) -> bool:
            return path.endswith(".md") and _IGNORED.isdisjoint(Path(path).parts)

    there = [folder for folder in folders if folder.is_dir()]
    if not there:
        return
    try:
        async for _ in awatch(
            *there,
            watch_filter=Notes(),
            debounce=max(1, debounce_ms),
            step=min(50, debounce_ms),
            rust_timeout=_LEAVES_WITHIN_MS,
        ):
            await noticed()
    except (OSError, RuntimeError) as error:
        log.warning("Notes cannot be watched (%s); they are checked before each search instead.", error)


async def sync_every(index: MemoryIndex, minutes: float) -> None:
    """Sync the index at intervals, until cancelled."""
    while True:
        await anyio.sleep(minutes * 60)
        await _sync(index)


async def embed_in_background(index: MemoryIndex, *, seconds: float = BATCH_LOOK_SECONDS) -> None:
    """Submit the batches that an index needs and store their vectors, until cancelled."""
    while True:
        await _sync(index, BatchUse.SUBMIT)
        await anyio.sleep(seconds)


async def _sync(index: MemoryIndex, use: BatchUse = BatchUse.SKIP) -> None:
    """Sync the index; a failure is logged, and the next change or interval tries again."""
    try:
        await index.sync(wait=False, use=use)
    except StorageError as error:
        log.warning("The memory index cannot be updated: %s", error)
