"""Background tasks that keep the built-in and the QMD index up to date: file watcher, intervals, batches."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from retinue.core.errors import StorageError
from retinue.memory.embed_texts import BatchUse
from retinue.memory.index import MemoryIndex
from retinue.memory.settings import QmdUpdate, SyncSettings

if TYPE_CHECKING:
    from retinue.memory.qmd.memory import QmdMemory

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


FIRST_BACKOFF_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 3600.0


async def run_qmd_updates(memory: QmdMemory, update: QmdUpdate, sync: SyncSettings) -> None:
    """Keep the QMD index up to date until cancelled."""
    changed = _ChangeSignal()
    memory.set_change_listener(changed.set)
    try:
        async with anyio.create_task_group() as tasks:
            if sync.watch:
                tasks.start_soon(_watch, memory, sync.watch_debounce_ms)
            tasks.start_soon(_update_after_changes, memory, changed, update.debounce_ms / 1000)
            if update.on_boot and memory.is_dirty:
                await _update(memory)
            if update.interval:
                tasks.start_soon(_update_every, memory, update.interval.total_seconds())
            if update.embed_interval and not memory.index.by_words:
                seconds = update.embed_interval.total_seconds()
                tasks.start_soon(_embed_every, memory, seconds, 0.0 if update.on_boot else seconds)
            await anyio.sleep_forever()
    finally:
        memory.set_change_listener(None)


class _ChangeSignal:
    """A resettable event; several changes before it is awaited count as one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def clear(self) -> None:
        self._event = anyio.Event()


async def _watch(memory: QmdMemory, debounce_ms: int) -> None:
    async def noticed() -> None:
        memory.mark_dirty()
        if memory.keeps_builtin:
            await memory.sync_builtin()

    memory.rely_on_watcher()
    try:
        await watch_folders(memory.library.folders, debounce_ms, noticed)
    finally:
        memory.rely_on_watcher(watched=False)


async def _update_after_changes(memory: QmdMemory, changed: _ChangeSignal, seconds: float) -> None:
    while True:
        await changed.wait()
        await anyio.sleep(seconds)
        changed.clear()
        if memory.is_dirty:
            await _update(memory)


async def _update_every(memory: QmdMemory, seconds: float) -> None:
    while True:
        await anyio.sleep(seconds)
        await _update(memory)


async def _embed_every(memory: QmdMemory, seconds: float, first: float) -> None:
    """Embed at intervals; after failures with growing backoff, because a failed download often fails again."""
    backoff, pause = FIRST_BACKOFF_SECONDS, first
    while True:
        await anyio.sleep(pause)
        try:
            await memory.embed()
        except StorageError as failure:
            log.warning("%s Embedding is retried in %.0f s.", failure, backoff)
            pause, backoff = backoff, min(MAX_BACKOFF_SECONDS, backoff * 2)
        else:
            pause, backoff = seconds, FIRST_BACKOFF_SECONDS


async def _update(memory: QmdMemory) -> None:
    try:
        await memory.update()
    except StorageError as failure:
        log.warning("%s Recent changes of the notes are not in the QMD index.", failure)
