"""Updates of the QMD index: at start, at intervals, and after changes."""

from __future__ import annotations

import logging

import anyio

from retinue.core.errors import StorageError
from retinue.memory.qmd.memory import QmdMemory
from retinue.memory.settings import QmdUpdate, SyncSettings
from retinue.memory.sync.watch import watch_folders

log = logging.getLogger(__name__)

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
