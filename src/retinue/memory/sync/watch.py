"""Noticing that notes changed."""

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
"""The watcher's thread looks so often whether it is still wanted; whoever cancels it waits for that."""

_IGNORED = frozenset({".git", "node_modules", "__pycache__"})


async def watch_notes(index: MemoryIndex, *, debounce_ms: int, on_change: Callable[[], None] | None = None) -> None:
    """Bring the index up to date after each burst of changes, until cancelled.

    While this runs a search looks at files only when something changed. Where folders cannot be watched, searches go
    back to looking for themselves.
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
    """Tell of each burst of changes to notes until cancelled; ends at once where the folders cannot be watched."""
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
        log.warning("Notes cannot be watched (%s); they are looked at before each search instead.", error)


async def sync_every(index: MemoryIndex, minutes: float) -> None:
    """Bring the index up to date at intervals, until cancelled."""
    while True:
        await anyio.sleep(minutes * 60)
        await _sync(index)


async def embed_in_background(index: MemoryIndex, *, seconds: float = BATCH_LOOK_SECONDS) -> None:
    """Start the batches that an index needs and fetch what they give, until cancelled."""
    while True:
        await _sync(index, BatchUse.SUBMIT)
        await anyio.sleep(seconds)


async def _sync(index: MemoryIndex, use: BatchUse = BatchUse.SKIP) -> None:
    """Bring the index up to date; what prevents it now is logged and tried again with the next occasion."""
    try:
        await index.sync(wait=False, use=use)
    except StorageError as error:
        log.warning("The memory index cannot be brought up to date: %s", error)
