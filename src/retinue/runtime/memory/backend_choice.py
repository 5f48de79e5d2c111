"""The backend of an agent's memory: the built-in index, or the QMD program with that index as fallback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from retinue.memory.index import MemoryIndex
from retinue.runtime.agents.agent import AgentWorkspace
from retinue.runtime.memory.notebook import open_index
from retinue.runtime.memory.sources import qmd_folder
from retinue.storage.provenance import AgentWrites

if TYPE_CHECKING:
    from retinue.memory.qmd.memory import QmdMemory

FIRST_SYNC_SECONDS = 2.0
"""How long the first message of a process may wait for notes that were never indexed."""


@asynccontextmanager
async def open_memory(
    workspace: AgentWorkspace, writes: AgentWrites | None = None, due: set[str] | None = None
) -> AsyncIterator[MemoryIndex | QmdMemory]:
    """Open an agent's memory as configured, and close it at the end of the block; nothing is watched."""
    async with open_index(workspace, writes, due) as builtin:
        if workspace.home.config.memory.backend == "builtin":
            yield builtin
            return
        memory = _make_qmd(workspace, builtin)
        try:
            yield memory
        finally:
            await memory.aclose()


def seconds_at_opening(workspace: AgentWorkspace) -> float:
    """Return how long to update a memory when it is opened; 0 means not at all."""
    memory, sync = workspace.home.config.memory, workspace.settings.memory_search.sync
    if memory.backend == "builtin":
        return FIRST_SYNC_SECONDS if sync.on_session_start else 0.0
    update = memory.qmd.update
    if not update.on_boot:
        return 0.0
    return update.update_timeout_ms / 1000 if update.wait_for_boot_sync else FIRST_SYNC_SECONDS


def _make_qmd(workspace: AgentWorkspace, builtin: MemoryIndex) -> QmdMemory:
    from retinue.memory.qmd.index import QmdIndex
    from retinue.memory.qmd.memory import RECALL_SECONDS, QmdMemory
    from retinue.memory.qmd.program import QmdFolders, QmdProgram

    home, settings = workspace.home, workspace.home.config.memory.qmd
    folders = QmdFolders(qmd_folder(workspace), home.paths.models / "qmd")
    program = QmdProgram(settings.command, folders, home.environment, uses_models=settings.search_mode != "search")
    recall = workspace.settings.memory_search.recall
    return QmdMemory(
        QmdIndex(program, builtin.library, workspace.id, settings.search_mode, settings.update),
        builtin,
        home.clock,
        settings,
        provenance=builtin.provenance,
        keeps_builtin=recall.enabled and recall.timeout_ms / 1000 < RECALL_SECONDS,
    )
