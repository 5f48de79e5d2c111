"""The memories of all agents: opened when first used, closed with the process.

The index is imported only when there are notes: an agent without notes does not pay for it.
"""

from __future__ import annotations

import logging
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, assert_never

import anyio

from retinue.context.prompt.inputs import RecalledPassage
from retinue.core.clock import random_id
from retinue.core.errors import StorageError
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.core.labels import Label, mix
from retinue.core.people import PEOPLE_FOLDER, Person
from retinue.memory.search.rules import remembers_sessions
from retinue.runtime.agents.workspace import AgentWorkspace, open_sessions
from retinue.runtime.home import agents_in_workspace
from retinue.runtime.memory.backend_choice import BUILT_IN_MEMORY, NO_MEMORY, memory_backend
from retinue.runtime.memory.standing_notes import write_stated
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.sessions.session import PERSON_NAME, recorded_person
from retinue.storage.database import Database
from retinue.storage.labels.command_traces import CommandTraces
from retinue.storage.labels.written_lines import lines_of, share_records
from retinue.storage.provenance import AgentWrites

if TYPE_CHECKING:
    from retinue.memory.backend import Memory
    from retinue.memory.embedding import Embedder
    from retinue.memory.search.ranking import MemoryHit
    from retinue.memory.store.protocol import Vector
    from retinue.runtime.memory.session_memory import OpenMemory, SessionMemory

log = logging.getLogger(__name__)

A_MOMENT_SECONDS = 2.0
"""How long a turn waits for newly written text to be indexed."""

MAX_READ_BYTES = 16 * 1024 * 1024

NOTE_NAMES = ("MEMORY.md", "memory.md", "memory")
_DIRECT = frozenset({SessionKind.MAIN, SessionKind.DIRECT, SessionKind.EXPLICIT})


class MemoryPool:
    """One memory per agent. `database` records which of their notes contain untrusted lines."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.traces = CommandTraces(database)
        self._opened: dict[AgentId, OpenMemory] = {}
        self._due: defaultdict[AgentId, set[str]] = defaultdict(set)
        self._openings: dict[AgentId, anyio.Event] = {}
        self._embedders: dict[AgentId, list[Embedder]] = {}
        self._recorded_under: dict[AgentId, AgentId] = {}
        """The agent under which the labels of an agent's files are recorded."""
        self._stack = AsyncExitStack()
        self._lock = anyio.Lock()

    def writes(self, workspace: AgentWorkspace) -> AgentWrites:
        """Return the record of untrusted lines in an agent's notes."""
        home, folder = workspace.home, workspace.root.path.resolve()
        known = self._recorded_under.get(workspace.id)
        first, *others = (known,) if known else agents_in_workspace(home.paths, home.config, workspace.id)
        writes = AgentWrites(self.database, home.clock, first, folder, self.traces, workspace.trusted)
        if known is None:
            self._recorded_under[workspace.id] = first
            if others:
                with self.database.change() as base:
                    share_records(base, first, others)
            self.traces.recover(writes.files)
            if not workspace.trusted:
                writes.files.distrust_unless_done()
        return writes

    async def session_memory(self, workspace: AgentWorkspace, session: SessionKey) -> SessionMemory | None:
        """Return an agent's memory as a session may use it; None if it may not."""
        from retinue.memory.notes import ReadLimits
        from retinue.runtime.memory.session_memory import open_session_memory

        settings = workspace.settings.memory_search
        if not settings.enabled or memory_backend(workspace.home) == NO_MEMORY:
            return None
        memory = await self._memory(workspace)
        sizes = workspace.settings.context_limits
        limits = ReadLimits(sizes.memory_get_default_lines, sizes.memory_get_max_chars)
        shared = workspace.home.config.memory
        return open_session_memory(memory, shared, settings, session, limits, partial(name_person, workspace))

    async def recall(self, workspace: AgentWorkspace, session: SessionKey, message: str) -> tuple[RecalledPassage, ...]:
        """Return what memory finds about a message; nothing in group chats. Never raises."""
        settings = workspace.settings.memory_search
        if not (workspace.trusted and settings.enabled and settings.recall.enabled):
            return ()
        if session.kind not in _DIRECT or not has_notes(workspace):
            return ()
        try:
            session_memory = await self.session_memory(workspace, session)
            if session_memory is None:
                return ()
            facts = await session_memory.recall_standing(message)
            hits = await session_memory.recall(message)
        except (StorageError, TimeoutError) as error:
            log.warning("memory of %s could not be searched: %s", workspace.id, error)
            return ()
        governing = (RecalledPassage(f"{fact.path}#L{fact.line}", fact.text, is_standing=True) for fact in facts)
        return (*governing, *(_as_passage(hit, session_memory.author_of(hit.origin)) for hit in hits))

    def note_standing(self, workspace: AgentWorkspace, session: SessionKey, message: str) -> None:
        """Write down the instructions and preferences that the owner states in a message. Never raises."""
        settings = workspace.settings.memory_search
        if not (settings.enabled and settings.recall.enabled and settings.recall.standing and workspace.trusted):
            return
        if session.kind not in _DIRECT:
            return
        try:
            if write_stated(workspace, message):
                self.record_change(workspace)
        except StorageError as error:
            log.warning("what you said for all answers could not be written down for %s: %s", workspace.id, error)

    async def recall_for_person(
        self, workspace: AgentWorkspace, person: Person, message: str
    ) -> tuple[RecalledPassage, ...]:
        """Return what the notes and sessions of another person say about their message. Never raises.

        Only what comes from that person is returned: nothing that the owner or anybody else wrote.
        """
        settings = workspace.settings.memory_search
        if not (workspace.trusted and settings.enabled and settings.recall.enabled):
            return ()
        if not remembers_sessions(settings) and not _exists(f"{workspace.root.path}/{person.folder}", NOTE_NAMES):
            return ()
        from retinue.runtime.memory.session_memory import open_index

        try:
            async with open_index(workspace, self.writes(workspace), person=person) as index:
                await index.sync()
                found = await index.recall(message, rules=index.rules, seconds=A_MOMENT_SECONDS)
        except (StorageError, TimeoutError) as error:
            log.warning("the memories of %s could not be searched: %s", person, error)
            return ()
        theirs = Label.of_person(person)
        return tuple(_as_passage(hit) for hit in found.hits if hit.origin == theirs)

    async def embed(self, workspace: AgentWorkspace, texts: Sequence[str]) -> tuple[str, Vector]:
        """Return the vectors of texts from an agent's embedder, and its name; raise `EmbeddingFailed` on failure."""
        from retinue.memory.embedding import embed_in_portions

        return await embed_in_portions(self._embedders_of(workspace), texts)

    def embedder_names(self, workspace: AgentWorkspace) -> frozenset[str]:
        """Return the accepted names of an agent's embedders: `provider/model`, or the model alone."""
        embedders = self._embedders_of(workspace)
        return frozenset(name for each in embedders for name in (each.model, f"{each.provider}/{each.model}"))

    def _embedders_of(self, workspace: AgentWorkspace) -> list[Embedder]:
        from retinue.runtime.memory.embedders import make_embedders
        from retinue.security.secrets import Secrets

        found = self._embedders.get(workspace.id)
        if found is None:
            home = workspace.home
            secrets = Secrets(home.environment, home.redactor)
            found = make_embedders(
                workspace.settings.memory_search, secrets, home.paths.models, home.config.models, home.registry
            )
            self._embedders[workspace.id] = found
            for embedder in found:
                self._stack.push_async_callback(embedder.aclose)
        return found

    def record_change(self, workspace: AgentWorkspace) -> None:
        """Record that a note of an agent was written; a memory that is not open finds it when opened."""
        memory = self._opened.get(workspace.id)
        if memory is not None:
            memory.mark_dirty()

    async def begin_session(self, workspace: AgentWorkspace) -> None:
        """Index what was written since the last session; a memory that is not open does so when opened."""
        memory = self._opened.get(workspace.id)
        if memory is not None and workspace.settings.memory_search.sync.on_session_start:
            await self._refresh(workspace, memory, "async")

    async def index_compaction(
        self, workspace: AgentWorkspace, session: str, how: Literal["off", "async", "await"]
    ) -> None:
        """Index the text that a compaction wrote, and its session if sessions are indexed.

        This waits for the end, or only for a moment, in which a note or two are indexed; the rest is indexed with the
        next search.
        """
        settings = workspace.settings.memory_search
        if how == "off" or not settings.enabled or not has_notes(workspace):
            return
        if settings.sync.sessions.post_compaction_force:
            self._due[workspace.id].add(session)
        try:
            await self._refresh(workspace, await self._memory(workspace), how)
        except StorageError as error:
            log.warning("memory of %s could not be opened: %s", workspace.id, error)

    async def _refresh(self, workspace: AgentWorkspace, memory: Memory, how: Literal["async", "await"]) -> None:
        memory.mark_dirty()
        try:
            with anyio.move_on_after(A_MOMENT_SECONDS if how == "async" else math.inf):
                await memory.sync(wait=how == "await")
        except StorageError as error:
            log.warning("memory of %s could not be brought up to date: %s", workspace.id, error)

    async def follow(self, workspace: AgentWorkspace) -> None:
        """Keep an agent's memory up to date until cancelled."""
        from retinue.memory.fallback import FallbackMemory
        from retinue.memory.index import MemoryIndex
        from retinue.runtime.memory.session_memory import keep_fresh

        settings, shared = workspace.settings.memory_search, workspace.home.config.memory
        backend = memory_backend(workspace.home)
        if not settings.enabled or backend == NO_MEMORY:
            return
        if backend == "qmd":
            await self._wait_for_start(workspace)
        memory = await self._memory(workspace)
        if isinstance(memory, MemoryIndex | FallbackMemory):
            async with keep_fresh(memory if isinstance(memory, MemoryIndex) else memory.builtin, settings):
                await anyio.sleep_forever()
        else:
            from retinue.memory.background import run_qmd_updates

            await run_qmd_updates(memory, shared.qmd.update, settings.sync)

    async def _wait_for_start(self, workspace: AgentWorkspace) -> None:
        """Wait until the backend should be started or memory is used, whichever comes first."""
        update = workspace.home.config.memory.qmd.update
        match update.startup:
            case "immediate":
                return
            case "idle":
                with anyio.move_on_after(update.startup_delay_ms / 1000):
                    await self._opening(workspace.id).wait()
            case "off":
                await self._opening(workspace.id).wait()
            case _:
                assert_never(update.startup)

    def _opening(self, agent: AgentId) -> anyio.Event:
        return self._openings.setdefault(agent, anyio.Event())

    async def aclose(self) -> None:
        self.traces.close()
        await self._stack.aclose()

    async def _memory(self, workspace: AgentWorkspace) -> OpenMemory:
        """Return the memory of an agent; it is opened and updated the first time."""
        from retinue.runtime.memory.session_memory import open_memory, seconds_at_opening

        async with self._lock:
            memory = self._opened.get(workspace.id)
            if memory is None:
                memory = await self._stack.enter_async_context(
                    open_memory(workspace, self.writes(workspace), self._due[workspace.id])
                )
                self._opened[workspace.id] = memory
                self._opening(workspace.id).set()
                if seconds := seconds_at_opening(workspace):
                    with anyio.move_on_after(seconds):
                        await memory.sync(wait=False)
            return memory


def _as_passage(hit: MemoryHit, author: str = "") -> RecalledPassage:
    """Return a hit as the prompt shows it: the text of other people is marked, with its author."""
    if not hit.origin.is_foreign:
        return RecalledPassage(hit.citation, hit.snippet)
    marked = wrap_untrusted(hit.snippet, TextSource.MEMORY, new_id=random_id, sender=author, warn=False)
    return RecalledPassage(hit.citation, marked, hit.origin)


def name_person(workspace: AgentWorkspace, label: Label) -> str:
    """Return the name of the person whose text has this label, as their last messages gave it, and the address."""
    names = (
        session.setting(PERSON_NAME)
        for session in open_sessions(workspace.home, workspace.id).list()
        if (person := recorded_person(session)) is not None and Label.of_person(person) == label
    )
    name = next(filter(None, names), "")
    return f"{name} ({label.origin})" if name else label.origin


def _exists(folder: str, names: Sequence[str]) -> bool:
    return any(os.path.exists(f"{folder}/{name}") for name in names)  # noqa: PTH110 - in every turn


def has_notes(workspace: AgentWorkspace) -> bool:
    """Return whether an agent has any notes; needs only a few file system calls."""
    settings, config = workspace.settings.memory_search, workspace.home.config
    backend, qmd = config.plugins.slots.memory or config.memory.backend, config.memory.qmd
    if backend != "qmd" and backend not in BUILT_IN_MEMORY:
        return backend != NO_MEMORY  # a plugin may remember what is in no file
    if settings.extra_paths or remembers_sessions(settings):
        return True
    if backend == "qmd" and (qmd.paths or qmd.sessions.enabled):
        return True
    return _exists(str(workspace.root.path), (*NOTE_NAMES, PEOPLE_FOLDER))


def trust_of_files(workspace: AgentWorkspace, writes: AgentWrites, names: Sequence[str]) -> Label:
    """Return the label of workspace files in a prompt, each judged by all its lines."""
    known = writes.labels_of(names)
    return mix(
        [Label.AGENT, *(_trust_of_file(workspace, writes, name) for name in names if known[name].label.is_foreign)]
    )


def _trust_of_file(workspace: AgentWorkspace, writes: AgentWrites, name: str) -> Label:
    try:
        data = workspace.root.read(name, max_bytes=MAX_READ_BYTES).data
    except StorageError:
        return Label.UNTRUSTED
    return writes.origin(name, lines_of(data.decode("utf-8-sig", "replace")))
