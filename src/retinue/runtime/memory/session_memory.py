"""The memory of agents: the index with its embedders, the backend, and a session's access to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.keys import SessionKey
from retinue.core.labels import Distance, Label
from retinue.core.people import Person
from retinue.memory.backend import Memory, SearchResult
from retinue.memory.background import embed_in_background, sync_every, watch_notes
from retinue.memory.embedding import BuiltInEmbedder, Embedder
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import USUAL_LIMITS, Corpus, Excerpt, ReadLimits, no_derived_notes
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchLimits, SearchRules, SearchWeights, may_search, should_cite, with_limits
from retinue.memory.settings import BatchSettings, LocalEmbedding, MemorySearchSettings, MemorySettings, QuerySettings
from retinue.memory.store.protocol import IndexStore
from retinue.memory.store.sqlite import SqliteStore
from retinue.providers.settings import ModelsSettings
from retinue.providers.vendors import settings_of
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.runtime.memory.sources import open_notes, open_notes_of, open_writes, provenance_of, qmd_folder
from retinue.security.secrets import Secrets
from retinue.storage.postgres import open_server
from retinue.storage.provenance import AgentWrites

if TYPE_CHECKING:
    from retinue.memory.qmd.memory import QmdMemory
    from retinue.providers.embeddings.batches import BatchLimits

KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
FIRST_SYNC_SECONDS = 2.0
"""How long the first message of a process may wait for notes that were never indexed."""


def index_path(workspace: AgentWorkspace, person: Person | None = None) -> Path:
    """Return the path of the database of an agent's index, or of the index of another person."""
    path = workspace.settings.memory_search.index_file(workspace.home.paths.path, workspace.id)
    return path if person is None else path.with_suffix("") / f"{person.folder}.sqlite"


@contextmanager
def open_store(workspace: AgentWorkspace, secrets: Secrets) -> Iterator[IndexStore]:
    """Open the store of an agent's index: in PostgreSQL if `storage.url` is set, otherwise in a file of the home."""
    url = workspace.home.config.storage.url
    if url is None:
        yield SqliteStore(index_path(workspace))
        return
    with open_server(secrets.resolve(url)) as server:
        from retinue.memory.store.postgres import PostgresStore  # most homes have no server

        server.check_schema()
        yield PostgresStore(server, workspace.id)


@asynccontextmanager
async def open_index(
    workspace: AgentWorkspace,
    writes: AgentWrites | None = None,
    due: set[str] | None = None,
    person: Person | None = None,
) -> AsyncIterator[MemoryIndex]:
    """Open an agent's index, and close it at the end of the block; nothing is watched.

    Without `writes` the record of untrusted lines is opened for the time of the block. Sessions whose ids are put into
    `due` are exported with the next sync, even if they have hardly grown. A `person` other than the owner has an index
    of their own, with the notes of their folder and their sessions alone. It is searched by words, so that
    they cannot cause cost at a provider of embeddings.
    """
    settings = workspace.settings.memory_search
    secrets = Secrets(workspace.home.environment, workspace.home.redactor)
    with ExitStack() as stack:
        if writes is None:
            writes = stack.enter_context(open_writes(workspace))
        if person is None:
            notes = stack.enter_context(open_notes(workspace, writes, due if due is not None else set()))
            store = stack.enter_context(open_store(workspace, secrets))
        else:
            notes = stack.enter_context(open_notes_of(person, workspace, writes))
            store = SqliteStore(index_path(workspace, person))
        index = MemoryIndex(
            store,
            Corpus(
                notes.library,
                settings.chunking,
                provenance_of(notes.library, workspace, writes, person),
                notes.export if notes.exports is not None else no_derived_notes,
            ),
            workspace.home.clock,
            embedders=[]
            if person is not None
            else make_embedders(settings, secrets, workspace.home.paths.models, workspace.home.config.models),
            rules=make_rules(settings.query),
        )
        try:
            yield index
        finally:
            limit = settings.cache.max_entries if settings.cache.enabled else 0
            if limit is not None:
                store.prune_cache(limit)
            await index.aclose()


@asynccontextmanager
async def keep_fresh(index: MemoryIndex, settings: MemorySearchSettings) -> AsyncIterator[None]:
    """Keep the index up to date while the block runs: by watching, at intervals, and until running batches are done."""
    sync = settings.sync
    async with anyio.create_task_group() as tasks:
        if index.embedder is not None and index.embedder.bulk is not None:
            tasks.start_soon(embed_in_background, index)
        if sync.watch:
            tasks.start_soon(lambda: watch_notes(index, debounce_ms=sync.watch_debounce_ms))
        if sync.interval_minutes:
            tasks.start_soon(sync_every, index, float(sync.interval_minutes))
        yield
        tasks.cancel_scope.cancel()


def make_rules(query: QuerySettings) -> SearchRules:
    """Return the rules for finding and scoring candidates, from the settings."""
    hybrid = query.hybrid
    weights = SearchWeights.of(hybrid.vector_weight, hybrid.text_weight) if hybrid.enabled else SearchWeights.of(1, 0)
    return SearchRules(
        limits=SearchLimits(query.max_results, query.min_score, query.max_snippet_chars, query.max_injected_chars),
        weights=weights,
        fusion=hybrid.fusion,
        candidate_multiplier=hybrid.candidate_multiplier,
        diversity=hybrid.mmr.lambda_ if hybrid.mmr.enabled else None,
        half_life_days=hybrid.temporal_decay.half_life_days if hybrid.temporal_decay.enabled else None,
    )


def make_embedders(
    settings: MemorySearchSettings, secrets: Secrets, models: Path, chat: ModelsSettings | None = None
) -> list[Embedder]:
    """Return the embedders in order of preference; none if vectors are off.

    `auto` never sends notes anywhere unless an endpoint or a key for embedding was configured. `models` is the folder
    of model files; `chat` has the keys of chat models, which a provider that is named uses too.
    """
    if not settings.store.vector.enabled:
        return []
    first = _choose_provider(settings)
    names = [name for name in dict.fromkeys((first, settings.fallback)) if name not in ("none", "auto")]
    return [
        _make_local(settings.local, models) if name == "local" else _make_remote(name, settings, secrets, chat)
        for name in names
    ]


def _choose_provider(settings: MemorySearchSettings) -> str:
    if settings.provider != "auto":
        return settings.provider
    remote = settings.remote
    return "openai-compatible" if remote.base_url else "openai" if remote.api_key else "local"


def explain_embedder(workspace: AgentWorkspace) -> str | None:
    """Return why `provider: auto` chose its embedder, and how a key that it does not use is used; None otherwise."""
    settings, home = workspace.settings.memory_search, workspace.home
    if settings.provider != "auto" or not settings.store.vector.enabled:
        return None
    match _choose_provider(settings):
        case "openai-compatible":
            return "auto: memorySearch.remote has a baseUrl"
        case "openai":
            return "auto: memorySearch.remote has an apiKey"
    for name, variable in KEY_VARIABLES.items():
        configured = settings_of(home.config.models, name)
        source = variable if home.environment.get(variable) else f"models.providers.{name}.apiKey"
        if home.environment.get(variable) or (configured and configured.api_key):
            return (
                f"auto: the built-in model, so that notes stay on this machine; {source} is used for chat models only. "
                f"Set memorySearch.provider to '{name}' to embed with it."
            )
    return "auto: the built-in model; no key for embedding is configured"


def _make_local(local: LocalEmbedding, models: Path) -> Embedder:
    if not local.model_path:
        return BuiltInEmbedder()
    from retinue.providers.embeddings.local import LocalEmbedder

    folder = Path(local.model_cache_dir).expanduser() if local.model_cache_dir else models
    return LocalEmbedder(folder / Path(local.model_path).expanduser())


def _make_remote(name: str, settings: MemorySearchSettings, secrets: Secrets, chat: ModelsSettings | None) -> Embedder:
    from retinue.providers.embeddings.remote import EmbeddingEndpoint, RemoteEmbedder

    remote = settings.remote
    key = secrets.environment.get(KEY_VARIABLES.get(name, "")) or None
    configured = settings_of(chat, name) if chat and name in KEY_VARIABLES else None
    if remote.api_key:
        key = secrets.resolve(remote.api_key)
    elif key is None and configured and configured.api_key:
        key = secrets.resolve(configured.api_key)
    headers = {header: secrets.resolve(value) for header, value in remote.headers.items()}
    endpoint = EmbeddingEndpoint(name, settings.model, remote.base_url, key, headers)
    return RemoteEmbedder(endpoint, terms=_batch_terms(remote.batch))


def _batch_terms(batch: BatchSettings) -> BatchLimits | None:
    if not batch.enabled:
        return None
    from retinue.providers.embeddings.batches import BatchLimits

    return BatchLimits(batch.wait, batch.concurrency, batch.poll_interval_ms / 1000, batch.timeout_minutes * 60.0)


def _show_origin(label: Label) -> str:
    return label.origin


class SessionMemory(Struct, frozen=True):
    """An agent's memory as one session uses it."""

    index: Memory
    settings: MemorySearchSettings
    cites: bool
    limits: ReadLimits = USUAL_LIMITS
    name_person: Callable[[Label], str] = _show_origin

    async def search(
        self, text: str, *, max_results: int | None = None, min_score: float | None = None
    ) -> SearchResult:
        rules = with_limits(self.index.rules, max_results=max_results, min_score=min_score)
        query = self.settings.query
        return await self.index.search(
            text, rules=rules, seconds=query.timeout_ms / 1000, refresh=self.settings.sync.on_search
        )

    async def read(self, path: str, start: int = 1, lines: int | None = None) -> Excerpt:
        return await self.index.read(path, start, lines or self.limits.lines, max_chars=self.limits.chars)

    def record_change(self) -> None:
        self.index.mark_dirty()

    def author_of(self, label: Label) -> str:
        """Return the name and address of the person whose text it is; empty if it is of no single person."""
        return self.name_person(label) if label.address else ""

    async def recall(self, message: str) -> tuple[MemoryHit, ...]:
        """Return what memory finds about a message in a short time.

        Texts of contacts are included; those of guests and untrusted ones are not.
        """
        if not self.settings.recall.enabled:
            return ()
        rules = replace(self.index.rules, farthest=Distance.CONTACT)
        found = await self.index.recall(message, rules=rules, seconds=self.settings.recall.timeout_ms / 1000)
        return found.hits


def open_session_memory(
    index: Memory,
    memory: MemorySettings,
    settings: MemorySearchSettings,
    session: SessionKey,
    limits: ReadLimits = USUAL_LIMITS,
    name_person: Callable[[Label], str] = _show_origin,
) -> SessionMemory | None:
    """Return the memory as a session may use it; None if the scope rules deny it."""
    if not settings.enabled or not may_search(memory.qmd.scope, session):
        return None
    return SessionMemory(index, settings, should_cite(memory.citations, session), limits, name_person)


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
