"""The memories of all agents while Retinue runs: opened when first used, closed with it.

Nothing of the index is imported before there is something to remember: an agent without notes never pays for it.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal, assert_never

import anyio

from retinue.context.prompt.inputs import Recollection
from retinue.core.errors import StorageError
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.memory.scope import remembers_sessions
from retinue.runtime.rooms import AgentRoom
from retinue.storage.database import Database
from retinue.storage.provenance import AgentWrites

if TYPE_CHECKING:
    from retinue.memory.backend import Memory
    from retinue.memory.embed import Embedder
    from retinue.memory.index import MemoryIndex
    from retinue.memory.qmd.memory import QmdMemory
    from retinue.memory.store import Vector
    from retinue.runtime.memory import SessionNotebook

log = logging.getLogger(__name__)

A_MOMENT_SECONDS = 2.0
"""How long a turn waits for what was just written to be indexed."""

_DIRECT = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT})


class Memories:
    """One memory per agent. `database` knows which of their notes came from outside."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._opened: dict[AgentId, MemoryIndex | QmdMemory] = {}
        self._due: defaultdict[AgentId, set[str]] = defaultdict(set)
        self._openings: dict[AgentId, anyio.Event] = {}
        self._embedders: dict[AgentId, list[Embedder]] = {}
        self._stack = AsyncExitStack()
        self._lock = anyio.Lock()

    def writes(self, room: AgentRoom) -> AgentWrites:
        """What was written into an agent's notes from outside."""
        return AgentWrites(self.database, room.foundation.clock, room.id)

    async def notebook(self, room: AgentRoom, session: SessionKey) -> SessionNotebook | None:
        """An agent's memory as a session may use it; None where it may not."""
        from retinue.memory.reading import ReadLimits
        from retinue.runtime.memory import open_notebook

        settings = room.settings.memory_search
        if not settings.enabled:
            return None
        memory = await self._memory(room)
        sizes = room.settings.context_limits
        limits = ReadLimits(sizes.memory_get_default_lines, sizes.memory_get_max_chars)
        return open_notebook(memory, room.foundation.config.memory, settings, session, limits)

    async def recall(self, room: AgentRoom, session: SessionKey, message: str) -> tuple[Recollection, ...]:
        """What memory knows about a message; nothing in chats where others read along, and never a failure."""
        settings = room.settings.memory_search
        if not (room.trusted and settings.enabled and settings.recall.enabled):
            return ()
        if session.kind not in _DIRECT or not has_notes(room):
            return ()
        try:
            notebook = await self.notebook(room, session)
            hits = await notebook.recall(message) if notebook else ()
        except (StorageError, TimeoutError) as error:
            log.warning("memory of %s could not be searched: %s", room.id, error)
            return ()
        return tuple(Recollection(hit.citation, hit.snippet) for hit in hits)

    async def embed(self, room: AgentRoom, texts: Sequence[str]) -> tuple[str, Vector]:
        """Vectors of texts by whoever embeds an agent's notes, and who that is; raises `EmbeddingFailed`."""
        from retinue.memory.embed import embed_in_portions

        return await embed_in_portions(self._embedders_of(room), texts)

    def embedder_names(self, room: AgentRoom) -> frozenset[str]:
        """By what those who embed an agent's notes can be named: `provider/model`, or the model alone."""
        embedders = self._embedders_of(room)
        return frozenset(name for each in embedders for name in (each.model, f"{each.provider}/{each.model}"))

    def _embedders_of(self, room: AgentRoom) -> list[Embedder]:
        from retinue.runtime.memory import make_embedders
        from retinue.security.secrets import Secrets

        found = self._embedders.get(room.id)
        if found is None:
            foundation = room.foundation
            secrets = Secrets(foundation.environment, foundation.redactor)
            found = make_embedders(room.settings.memory_search, secrets, foundation.home.models)
            self._embedders[room.id] = found
            for embedder in found:
                self._stack.push_async_callback(embedder.aclose)
        return found

    def note_change(self, room: AgentRoom) -> None:
        """Say that a note of an agent was written; a memory that is not open yet will see for itself."""
        memory = self._opened.get(room.id)
        if memory is not None:
            memory.mark_dirty()

    async def begin_session(self, room: AgentRoom) -> None:
        """Take in what was written since the last session; a memory that is not open yet does so when it is opened."""
        memory = self._opened.get(room.id)
        if memory is not None and room.settings.memory_search.sync.on_session_start:
            await self._refresh(room, memory, "async")

    async def take_in(self, room: AgentRoom, session: str, how: Literal["off", "async", "await"]) -> None:
        """Make searchable what a compaction wrote, and its session where sessions are indexed.

        This is waited for to its end, or only for a moment, in which a note or two are indexed; what is left then
        comes with the next search.
        """
        settings = room.settings.memory_search
        if how == "off" or not settings.enabled or not has_notes(room):
            return
        if settings.sync.sessions.post_compaction_force:
            self._due[room.id].add(session)
        try:
            await self._refresh(room, await self._memory(room), how)
        except StorageError as error:
            log.warning("memory of %s could not be opened: %s", room.id, error)

    async def _refresh(self, room: AgentRoom, memory: Memory, how: Literal["async", "await"]) -> None:
        memory.mark_dirty()
        try:
            with anyio.move_on_after(A_MOMENT_SECONDS if how == "async" else math.inf):
                await memory.sync(wait=how == "await")
        except StorageError as error:
            log.warning("memory of %s could not be brought up to date: %s", room.id, error)

    async def follow(self, room: AgentRoom) -> None:
        """Keep an agent's memory up to date until cancelled."""
        from retinue.memory.index import MemoryIndex
        from retinue.runtime.memory import keep_fresh

        settings, shared = room.settings.memory_search, room.foundation.config.memory
        if not settings.enabled:
            return
        if shared.backend == "qmd":
            await self._wait_for_start(room)
        memory = await self._memory(room)
        if isinstance(memory, MemoryIndex):
            async with keep_fresh(memory, settings):
                await anyio.sleep_forever()
        else:
            from retinue.memory.qmd.cycles import keep_qmd_fresh

            await keep_qmd_fresh(memory, shared.qmd.update, settings.sync)

    async def _wait_for_start(self, room: AgentRoom) -> None:
        """Until the program is to be started, or memory is used, whichever comes first."""
        update = room.foundation.config.memory.qmd.update
        match update.startup:
            case "immediate":
                return
            case "idle":
                with anyio.move_on_after(update.startup_delay_ms / 1000):
                    await self._opening(room.id).wait()
            case "off":
                await self._opening(room.id).wait()
            case _:
                assert_never(update.startup)

    def _opening(self, agent: AgentId) -> anyio.Event:
        return self._openings.setdefault(agent, anyio.Event())

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def _memory(self, room: AgentRoom) -> MemoryIndex | QmdMemory:
        """The memory of an agent, opened and brought up to date the first time."""
        from retinue.runtime.backends import open_memory, seconds_at_opening

        async with self._lock:
            memory = self._opened.get(room.id)
            if memory is None:
                memory = await self._stack.enter_async_context(open_memory(room, self.writes(room), self._due[room.id]))
                self._opened[room.id] = memory
                self._opening(room.id).set()
                if seconds := seconds_at_opening(room):
                    with anyio.move_on_after(seconds):
                        await memory.sync(wait=False)
            return memory


def has_notes(room: AgentRoom) -> bool:
    """Whether there is anything to remember at all: a few looks at the disk."""
    settings, shared = room.settings.memory_search, room.foundation.config.memory
    if settings.extra_paths or remembers_sessions(settings):
        return True
    if shared.backend == "qmd" and (shared.qmd.paths or shared.qmd.sessions.enabled):
        return True
    return any((room.root.path / name).exists() for name in ("MEMORY.md", "memory.md", "memory"))
