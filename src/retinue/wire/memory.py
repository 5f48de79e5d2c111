"""An agent's notes: searching them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class SearchMemory(OfAgent):
    """What to look for."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    max_results: int | None = Field(default=None, ge=1, le=50)
    min_score: float | None = Field(default=None, ge=0, le=1)


class MemoryHit(Wire):
    """A passage that was found."""

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: str


class MemoryHits(Wire):
    """Best first; `reason` says why only words were compared, where that is so."""

    hits: list[MemoryHit]
    reason: str | None = None


class MemoryStatus(Wire):
    """What is indexed."""

    enabled: bool
    files: int = 0
    chunks: int = 0
    embedded: int = 0
    provider: str | None = None
    model: str | None = None
    last_sync: str | None = None


SEARCH = Method("memory.search", Scope.READ, SearchMemory, MemoryHits, "Search an agent's notes.")
STATUS = Method("memory.status", Scope.READ, OfAgent, MemoryStatus, "What is indexed of an agent's notes.")

METHODS = (SEARCH, STATUS)
