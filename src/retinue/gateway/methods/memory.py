"""Search in an agent's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.errors import UsageError
from retinue.core.keys import SessionKey
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.wire import memory as wire
from retinue.wire.agents import OfAgent

if TYPE_CHECKING:
    from retinue.runtime.memory.notebook import SessionNotebook

registry = MethodRegistry()


async def _notebook(call: Call, agent: str | None) -> SessionNotebook | None:
    found = call.runtime.home.agent_id(agent)
    return await call.runtime.shared.memories.notebook(call.runtime.agent(found).workspace, SessionKey.main(found))


@registry.implements(wire.SEARCH)
async def search(call: Call, params: wire.SearchMemory) -> wire.MemoryHits:
    notebook = await _notebook(call, params.agent)
    if notebook is None:
        raise UsageError("The agent has no memory search. Set agents.defaults.memorySearch.enabled.")
    found = await notebook.search(params.query, max_results=params.max_results, min_score=params.min_score)
    return wire.MemoryHits(
        hits=[
            wire.MemoryHit(
                path=hit.path,
                start_line=hit.start_line,
                end_line=hit.end_line,
                score=hit.score,
                snippet=hit.snippet,
                source=hit.source,
            )
            for hit in found.hits
        ],
        reason=found.reason,
    )


@registry.implements(wire.STATUS)
async def status(call: Call, params: OfAgent) -> wire.MemoryStatus:
    notebook = await _notebook(call, params.agent)
    if notebook is None:
        return wire.MemoryStatus(enabled=False)
    from retinue.memory.index import MemoryIndex

    if not isinstance(notebook.index, MemoryIndex):
        return wire.MemoryStatus(enabled=True, provider="qmd")
    found = await notebook.index.status()
    return wire.MemoryStatus(
        enabled=True,
        files=found.totals.files,
        chunks=found.totals.chunks,
        embedded=found.totals.embedded,
        provider=found.provider,
        model=found.model,
        last_sync=found.synced_at,
    )
