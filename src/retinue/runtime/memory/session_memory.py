"""The memory of agents: the index with its embedders, the backend, and a session's access to it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.extension import ExtensionPoint
from retinue.core.keys import SessionKey
from retinue.core.labels import Distance, Label
from retinue.core.people import Person
from retinue.memory.backend import Memory, MemoryParts, SearchResult, is_about
from retinue.memory.background import embed_in_background, sync_every, watch_notes
from retinue.memory.fallback import FallbackMemory
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import USUAL_LIMITS, Corpus, Excerpt, ReadLimits, no_derived_notes
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchLimits, SearchRules, SearchWeights, may_search, should_cite, with_limits
from retinue.memory.settings import MemorySearchSettings, MemorySettings, QuerySettings
from retinue.memory.standing import STANDING_NOTE, StandingFact
from retinue.memory.store.protocol import IndexStore
from retinue.memory.store.sqlite import SqliteStore
from retinue.plugins.builtin import BUILT_IN_NAMES
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.providers.vendors import settings_of
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.runtime.memory.backend_choice import BUILT_IN_MEMORY, memory_backend
from retinue.runtime.memory.embedders import KEY_VARIABLES, choose_provider, make_embedders
from retinue.runtime.memory.sources import open_notes, open_notes_of, open_writes, provenance_of, qmd_folder
from retinue.security.secrets import Secrets
from retinue.storage.postgres import DEFAULT_TEAM, open_server
from retinue.storage.provenance import AgentWrites

if TYPE_CHECKING:
    from retinue.memory.qmd.memory import QmdMemory

    OpenMemory = MemoryIndex | QmdMemory | FallbackMemory

log = logging.getLogger(__name__)

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
    team = workspace.home.config.teams.team or DEFAULT_TEAM
    with open_server(secrets.resolve(url), team) as server:
        from retinue.memory.store.postgres import PostgresStore  # most homes have no server

        server.check_schema()
        yield PostgresStore(server, f"{team}/{workspace.id}")


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
            else make_embedders(
                settings, secrets, workspace.home.paths.models, workspace.home.config.models, workspace.home.registry
            ),
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


def explain_embedder(workspace: AgentWorkspace) -> str | None:
    """Return why `provider: auto` chose its embedder, and how a key that it does not use is used; None otherwise."""
    settings, home = workspace.settings.memory_search, workspace.home
    if settings.provider != "auto" or not settings.store.vector.enabled:
        return None
    match choose_provider(settings):
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
        """Return what memory finds about a message in a short time; nothing if no note is about it.

        Texts of contacts are included; those of guests and untrusted ones are not.
        """
        if not self.settings.recall.enabled:
            return ()
        rules = replace(self.index.rules, farthest=Distance.CONTACT)
        found = await self.index.recall(message, rules=rules, seconds=self.settings.recall.timeout_ms / 1000)
        if not is_about(found, message):
            return ()
        standing = self.settings.recall.standing
        return tuple(hit for hit in found.hits if not (standing and hit.path == STANDING_NOTE))

    async def recall_standing(self, message: str) -> tuple[StandingFact, ...]:
        """Return the instructions and preferences of the owner that govern a message."""
        recall = self.settings.recall
        if not (recall.enabled and recall.standing):
            return ()
        index = built_in_index(self.index)
        return await index.recall_standing(message, recall.timeout_ms / 1000) if index is not None else ()


def built_in_index(memory: Memory) -> MemoryIndex | None:
    """Return the built-in index of a memory, which is kept beside any other backend."""
    if isinstance(memory, MemoryIndex):
        return memory
    builtin = getattr(memory, "builtin", None)
    return builtin if isinstance(builtin, MemoryIndex) else None


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
) -> AsyncIterator[OpenMemory]:
    """Open an agent's memory as configured, and close it at the end of the block; nothing is watched."""
    async with open_index(workspace, writes, due) as builtin:
        opened = _make_backend(workspace, builtin)
        try:
            yield opened
        finally:
            if not isinstance(opened, MemoryIndex):
                await opened.aclose()


def _make_backend(workspace: AgentWorkspace, builtin: MemoryIndex) -> OpenMemory:
    """Return the memory backend of the slot; the built-in index if there is none or it cannot be made."""
    home, name = workspace.home, memory_backend(workspace.home)
    extension = home.registry.extensions[ExtensionPoint.MEMORY].get(name)
    if extension is None:
        if name not in BUILT_IN_MEMORY:
            log.warning("there is no memory backend '%s'; the built-in index is used", name)
        return builtin
    recall = workspace.settings.memory_search.recall
    parts = MemoryParts(
        workspace.id,
        builtin,
        home.config.memory,
        home.clock,
        home.environment,
        qmd_folder(workspace) if name == "qmd" else home.paths.path / "plugin-data" / extension.plugin / workspace.id,
        home.paths.models,
        recall.timeout_ms / 1000 if recall.enabled else None,
    )
    try:
        made: Memory = call_contained(lambda: extension.make.load()(parts))
    except PluginError as error:
        home.registry.switch_off(extension.plugin, f"its memory backend '{name}' cannot be made: {error}")
        return builtin
    if extension.plugin in BUILT_IN_NAMES:
        return cast("QmdMemory", made)
    return FallbackMemory(made, builtin, name)


def seconds_at_opening(workspace: AgentWorkspace) -> float:
    """Return how long to update a memory when it is opened; 0 means not at all."""
    memory, sync = workspace.home.config.memory, workspace.settings.memory_search.sync
    if memory_backend(workspace.home) != "qmd":
        return FIRST_SYNC_SECONDS if sync.on_session_start else 0.0
    update = memory.qmd.update
    if not update.on_boot:
        return 0.0
    return update.update_timeout_ms / 1000 if update.wait_for_boot_sync else FIRST_SYNC_SECONDS
