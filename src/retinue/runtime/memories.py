"""The memories of all agents while Retinue runs: opened when first used, closed with it.

Nothing of the index is imported before there is something to remember: an agent without notes never pays for it.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from retinue.context.prompt.inputs import Recollection
from retinue.core.errors import StorageError
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.runtime.rooms import AgentRoom

if TYPE_CHECKING:
    from retinue.memory.index import MemoryIndex
    from retinue.runtime.memory import SessionNotebook

log = logging.getLogger(__name__)

FIRST_SYNC_SECONDS = 2.0
"""How long the first message of a process may wait for notes that were never indexed."""

_DIRECT = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT})


@dataclass
class Memories:
    """One index per agent."""

    _indexes: dict[AgentId, MemoryIndex] = field(default_factory=dict, init=False)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    async def notebook(self, room: AgentRoom, session: SessionKey) -> SessionNotebook | None:
        """An agent's memory as a session may use it; None where it may not."""
        from retinue.runtime.memory import open_notebook

        settings = room.settings.memory_search
        if not settings.enabled:
            return None
        index = await self._index(room)
        return open_notebook(index, room.foundation.config.memory, settings, session)

    async def recall(self, room: AgentRoom, session: SessionKey, message: str) -> tuple[Recollection, ...]:
        """What memory knows about a message; nothing in chats where others read along, and never a failure."""
        settings = room.settings.memory_search
        if session.kind not in _DIRECT or not (settings.enabled and settings.recall.enabled) or not has_notes(room):
            return ()
        try:
            notebook = await self.notebook(room, session)
            hits = await notebook.recall(message) if notebook else ()
        except (StorageError, TimeoutError) as error:
            log.warning("memory of %s could not be searched: %s", room.id, error)
            return ()
        return tuple(Recollection(hit.citation, hit.snippet) for hit in hits)

    async def follow(self, room: AgentRoom) -> None:
        """Keep an agent's index up to date until cancelled."""
        from retinue.runtime.memory import keep_fresh

        settings = room.settings.memory_search
        if not settings.enabled:
            return
        async with keep_fresh(await self._index(room), settings):
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def _index(self, room: AgentRoom) -> MemoryIndex:
        """The index of an agent, opened and brought up to date the first time."""
        from retinue.runtime.memory import open_index

        async with self._lock:
            index = self._indexes.get(room.id)
            if index is None:
                index = await self._stack.enter_async_context(open_index(room))
                self._indexes[room.id] = index
                if room.settings.memory_search.sync.on_session_start:
                    with anyio.move_on_after(FIRST_SYNC_SECONDS):
                        await index.sync(wait=False)
            return index


def has_notes(room: AgentRoom) -> bool:
    """Whether there is anything to remember at all: a few looks at the disk."""
    settings = room.settings.memory_search
    if settings.extra_paths or "sessions" in settings.sources:
        return True
    return any((room.root.path / name).exists() for name in ("MEMORY.md", "memory.md", "memory"))
