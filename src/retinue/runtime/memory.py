"""The memory of agents, put together: notes, embedder, index, and who may search it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from retinue.core.errors import StorageError
from retinue.core.keys import SessionKey, SessionKind
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.trust import Trust
from retinue.memory.documents import Library, Problem, Provenance, Shelf, workspace_shelf, written_by_agent
from retinue.memory.embed import BuiltInEmbedder, Embedder
from retinue.memory.fusion import Weights
from retinue.memory.index import MemoryIndex, SearchResult, narrowed
from retinue.memory.ranking import Hit, Limits
from retinue.memory.reading import Excerpt
from retinue.memory.scope import may_search, should_cite
from retinue.memory.search import Rules
from retinue.memory.settings import MemorySearchSettings, MemorySettings, QuerySettings
from retinue.memory.sqlite import SqliteStore
from retinue.memory.transcripts import TranscriptFacts, export_sessions
from retinue.memory.watch import sync_every, watch_notes
from retinue.runtime.records import make_redactor, open_sessions
from retinue.runtime.rooms import AgentRoom
from retinue.security.secrets import Redactor, Secrets
from retinue.sessions.entries import MessageAdded
from retinue.sessions.session import Session
from retinue.sessions.store import SessionStore
from retinue.storage.files import Root

RECALLED_ORIGINS = frozenset({Trust.OWNER, Trust.AGENT})
_TALKS = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT, SessionKind.GROUP, SessionKind.CHANNEL})


def index_path(room: AgentRoom) -> Path:
    """The database of an agent's index."""
    configured = room.settings.memory_search.store.path
    if configured:
        return Path(configured.replace("{agentId}", room.id)).expanduser()
    return room.foundation.home.path / "memory" / f"{room.id}.sqlite"


@asynccontextmanager
async def open_index(room: AgentRoom, *, provenance: Provenance = written_by_agent) -> AsyncIterator[MemoryIndex]:
    """An agent's index, closed at the end of the block; nothing is watched."""
    settings = room.settings.memory_search
    exports = _open_exports(room) if "sessions" in settings.sources else None
    library = Library(*_shelves(room, exports))
    store = SqliteStore(index_path(room))
    redactor = make_redactor(room.foundation)

    def export() -> Iterable[Problem]:
        assert exports is not None
        source = _Sessions(open_sessions(room.foundation, room.id), redactor)
        retention = room.foundation.config.memory.qmd.sessions.retention_days
        now = room.foundation.clock.now()
        return export_sessions(source, exports, settings.sync.sessions, retention_days=retention, now=now)

    index = MemoryIndex(
        store,
        library,
        room.foundation.clock,
        embedders=make_embedders(settings, Secrets(room.foundation.environment)),
        rules=make_rules(settings.query),
        chunking=settings.chunking,
        provenance=provenance,
        prepare=(lambda: tuple(export())) if exports is not None else None,
    )
    try:
        yield index
    finally:
        most = settings.cache.max_entries
        if most is not None:
            store.prune_cache(most)
        await index.aclose()
        if exports is not None:
            exports.close()


@asynccontextmanager
async def keep_fresh(index: MemoryIndex, settings: MemorySearchSettings) -> AsyncIterator[None]:
    """Follow the notes while the block runs: by watching, and at intervals."""
    sync = settings.sync
    async with anyio.create_task_group() as tasks:
        if sync.watch:
            tasks.start_soon(lambda: watch_notes(index, debounce_ms=sync.watch_debounce_ms))
        if sync.interval_minutes:
            tasks.start_soon(sync_every, index, float(sync.interval_minutes))
        yield
        tasks.cancel_scope.cancel()


def make_rules(query: QuerySettings) -> Rules:
    """How the settings want candidates found and scored."""
    hybrid = query.hybrid
    weights = Weights.of(hybrid.vector_weight, hybrid.text_weight) if hybrid.enabled else Weights.of(1, 0)
    return Rules(
        limits=Limits(query.max_results, query.min_score, query.max_snippet_chars, query.max_injected_chars),
        weights=weights,
        fusion=hybrid.fusion,
        candidate_multiplier=hybrid.candidate_multiplier,
        diversity=hybrid.mmr.lambda_ if hybrid.mmr.enabled else None,
        half_life_days=hybrid.temporal_decay.half_life_days if hybrid.temporal_decay.enabled else None,
    )


def make_embedders(settings: MemorySearchSettings, secrets: Secrets) -> list[Embedder]:
    """Who embeds, in order of preference; nobody where vectors are off.

    `auto` never sends notes anywhere unless an endpoint for embedding was configured.
    """
    if not settings.store.vector.enabled:
        return []
    remote = settings.remote
    first = settings.provider
    if first == "auto":
        first = "openai-compatible" if remote.base_url else "openai" if remote.api_key else "local"
    names = [name for name in dict.fromkeys((first, settings.fallback)) if name not in ("none", "auto")]
    return [_make_embedder(name, settings, secrets) for name in names]


def _make_embedder(name: str, settings: MemorySearchSettings, secrets: Secrets) -> Embedder:
    if name == "local":
        return BuiltInEmbedder()
    from retinue.providers.embeddings import EmbeddingEndpoint, RemoteEmbedder

    remote = settings.remote
    key = secrets.resolve(remote.api_key) if remote.api_key else _key_from(name, secrets)
    headers = {header: secrets.resolve(value) for header, value in remote.headers.items()}
    return RemoteEmbedder(EmbeddingEndpoint(name, settings.model, remote.base_url, key, headers))


_KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}


def _key_from(name: str, secrets: Secrets) -> str | None:
    return secrets.environment.get(_KEY_VARIABLES.get(name, "")) or None


def _open_exports(room: AgentRoom) -> Root:
    return Root.open(room.foundation.home.path / "agents" / room.id / "qmd" / "sessions", create=True)


def _shelves(room: AgentRoom, exports: Root | None) -> tuple[list[Shelf], list[Problem]]:
    """The agent's notes, what `extraPaths` names, and exported sessions."""
    settings = room.settings.memory_search
    inside: list[str] = []
    outside: list[Shelf] = []
    problems: list[Problem] = []
    workspace = room.root.path.absolute()
    for text in settings.extra_paths:
        path = workspace / Path(text).expanduser()
        if path.is_relative_to(workspace) and path != workspace and ".." not in path.parts:
            inside.append(path.relative_to(workspace).as_posix())
            continue
        try:
            outside.append(_outside_shelf(path, {shelf.prefix for shelf in outside}))
        except StorageError as error:
            problems.append(Problem(text, str(error)))
    shelves = [*([workspace_shelf(room.root, inside)] if "memory" in settings.sources else []), *outside]
    if exports is not None:
        shelves.append(Shelf(exports, "sessions", "sessions/", folders=(".",)))
    return shelves, problems


def _outside_shelf(path: Path, taken: set[str]) -> Shelf:
    is_file = path.suffix == ".md"
    folder = path.parent if is_file else path
    name, number = folder.name or "root", 1
    while f"extra/{name}/" in taken:
        number += 1
        name = f"{folder.name}-{number}"
    root = Root.open(folder)
    return Shelf(
        root, "memory", f"extra/{name}/", files=(path.name,) if is_file else (), folders=() if is_file else (".",)
    )


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Past conversations between people and the agent; what clocks and jobs started is left out."""

    store: SessionStore
    redactor: Redactor

    def list(self) -> list[TranscriptFacts]:
        return [
            TranscriptFacts(session.id, session.size, session.messages, session.updated_at)
            for session in self.store.list()
            if session.key.kind in _TALKS
        ]

    def render(self, session: str) -> str:
        found = next(row for row in self.store.list() if row.id == session)
        return self.redactor.redact(_render(found, self.store))


def _render(session: Session, store: SessionStore) -> str:
    lines = [f"# Session of {session.started_at:%Y-%m-%d}", ""]
    for entry in store.open(session.key).tree.path:
        match entry.body:
            case MessageAdded(message=UserMessage() as message) if message.text.strip():
                lines.append(f"User: {message.text.strip()}")
            case MessageAdded(message=AssistantMessage() as message) if message.text.strip():
                lines.append(f"Assistant: {message.text.strip()}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class SessionNotebook:
    """An agent's memory as one session uses it."""

    index: MemoryIndex
    settings: MemorySearchSettings
    cites: bool

    async def search(
        self, text: str, *, max_results: int | None = None, min_score: float | None = None
    ) -> SearchResult:
        rules = narrowed(self.index.rules, max_results=max_results, min_score=min_score)
        query = self.settings.query
        return await self.index.search(
            text, rules=rules, seconds=query.timeout_ms / 1000, refresh=self.settings.sync.on_search
        )

    async def read(self, path: str, start: int = 1, lines: int | None = None) -> Excerpt:
        return await self.index.read(path, start, lines)

    def note_change(self) -> None:
        self.index.mark_dirty()

    async def recall(self, message: str) -> tuple[Hit, ...]:
        """What memory knows about a message, found in a moment or not at all; nothing that came from outside."""
        if not self.settings.recall.enabled:
            return ()
        rules = replace(self.index.rules, origins=RECALLED_ORIGINS)
        found = await self.index.search(
            message, rules=rules, seconds=self.settings.recall.timeout_ms / 1000, refresh=False
        )
        return found.hits


def open_notebook(
    index: MemoryIndex, memory: MemorySettings, settings: MemorySearchSettings, session: SessionKey
) -> SessionNotebook | None:
    """The notebook of a session; None where the scope rules keep it from memory."""
    if not settings.enabled or not may_search(memory.qmd.scope, session):
        return None
    return SessionNotebook(index, settings, should_cite(memory.citations, session))
