"""Search in an agent's notes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class SearchMemory(OfAgent, frozen=True, kw_only=True):
    """The query."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000)]
    max_results: Annotated[int, Meta(ge=1, le=50)] | None = None
    min_score: Annotated[float, Meta(ge=0, le=1)] | None = None


class MemoryHit(Wire, frozen=True):
    """A passage that was found."""

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: str


class MemoryHits(Wire, frozen=True):
    """Best first. If only words were compared, `reason` explains why."""

    hits: list[MemoryHit]
    reason: str | None = None


class MemoryStatus(Wire, frozen=True):
    """What is indexed."""

    enabled: bool
    files: int = 0
    chunks: int = 0
    embedded: int = 0
    provider: str | None = None
    model: str | None = None
    last_sync: str | None = None


SEARCH = Method("memory.search", Scope.READ, SearchMemory, MemoryHits, "Search an agent's notes.")
STATUS = Method("memory.status", Scope.READ, OfAgent, MemoryStatus, "Report what is indexed of an agent's notes.")

METHODS = (SEARCH, STATUS)
