"""Noticing that notes changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import anyio

from retinue.memory.index import MemoryIndex

log = logging.getLogger(__name__)

_IGNORED = frozenset({".git", "node_modules", "__pycache__"})


async def watch_notes(index: MemoryIndex, *, debounce_ms: int, on_change: Callable[[], None] | None = None) -> None:
    """Bring the index up to date after each burst of changes, until cancelled.

    While this runs a search looks at files only when something changed. Where folders cannot be watched, searches go
    back to looking for themselves.
    """
    from watchfiles import DefaultFilter, awatch

    class Notes(DefaultFilter):
        def __call__(self, change: object, path: str) -> bool:
            return path.endswith(".md") and _IGNORED.isdisjoint(Path(path).parts)

    folders = [folder for folder in index.library.folders if folder.is_dir()]
    if not folders:
        return
    index.rely_on_watcher()
    try:
        async for _ in awatch(*folders, watch_filter=Notes(), debounce=max(1, debounce_ms), step=min(50, debounce_ms)):
            index.mark_dirty()
            await index.sync(wait=False)
            if on_change:
                on_change()
    except (OSError, RuntimeError) as error:
        log.warning("Notes cannot be watched (%s); they are looked at before each search instead.", error)
    finally:
        index.rely_on_watcher(watched=False)


async def sync_every(index: MemoryIndex, minutes: float) -> None:
    """Bring the index up to date at intervals, until cancelled."""
    while True:
        await anyio.sleep(minutes * 60)
        await index.sync(wait=False)
