"""The QMD index of one agent's notes: registering collections, updating, embedding, searching."""

from __future__ import annotations

import logging
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.memory.notes import Library
from retinue.memory.qmd.collections import Collection, is_registered, plan_collections, read_registered
from retinue.memory.qmd.program import QmdFailed, QmdProgram
from retinue.memory.qmd.results import (
    QmdMatch,
    UpdateCounts,
    merge_matches,
    parse_counts,
    parse_matches,
    query_by_meaning,
    query_for_all,
    query_for_any,
)
from retinue.memory.search.query import MemoryQuery
from retinue.memory.settings import QmdUpdate

log = logging.getLogger(__name__)

SearchMode = Literal["search", "vsearch", "query"]
MAX_MATCHES = 100
_SIDE_FILES = ("", "-wal", "-shm")


class QmdIndex(Struct, frozen=True):
    """Runs the commands of the QMD program; each raises `QmdFailed` on failure."""

    program: QmdProgram
    library: Library
    agent: str
    mode: SearchMode
    times: QmdUpdate

    @property
    def by_words(self) -> bool:
        """Whether it searches text only, without a model."""
        return self.mode == "search"

    async def version(self) -> str:
        return (await self.program.run("--version", seconds=self._command_seconds)).strip()[:80]

    async def collections(self) -> dict[str, Collection]:
        """Return the registered collections by name."""
        return await anyio.to_thread.run_sync(self._ready)

    async def wanted(self) -> tuple[Collection, ...]:
        """Return the collections that should be registered."""
        return await anyio.to_thread.run_sync(plan_collections, self.library.note_folders, self.agent)

    async def update(self) -> UpdateCounts:
        """Register missing collections, remove others, and index changes."""
        wanted = await self.wanted()
        await self._forget_others(wanted)
        registered = await self._registered()
        new = [await self._register(collection) for collection in wanted if not is_registered(collection, registered)]
        if not wanted:
            return UpdateCounts(0, 0, 0)
        counts = parse_counts(await self.program.run("update", seconds=self.times.update_timeout_ms / 1000))
        return replace(counts, changed=counts.changed + sum(new))

    async def embed(self) -> None:
        """Embed the texts without a vector; this needs a model."""
        await self.program.run("embed", seconds=self.times.embed_timeout_ms / 1000)

    async def search(self, query: MemoryQuery, most: int, seconds: float) -> tuple[QmdMatch, ...]:
        """Search, best match first. A text search returns files with all words, then those with some."""
        names = [name for name in await self.collections() for name in ("-c", name)]
        if not names:
            return ()
        options = ("--json", "-n", str(min(MAX_MATCHES, most)), *names, "--")
        end = anyio.current_time() + seconds
        if not self.by_words:
            answer = await self.program.run(self.mode, *options, query_by_meaning(query), seconds=seconds)
            return parse_matches(answer)
        every = query_for_all(query)
        found = parse_matches(await self.program.run("search", *options, every, seconds=seconds))
        one_by_one = query_for_any(query)
        if len(found) >= most or "\n" not in one_by_one:
            return found
        left = max(0.01, end - anyio.current_time())
        more = await self.program.run("query", "--no-rerank", *options, one_by_one, seconds=left)
        return merge_matches(found, parse_matches(more))

    async def discard(self) -> None:
        """Delete the program's index and configuration; both are derived."""
        await anyio.to_thread.run_sync(self._discard)

    @property
    def _command_seconds(self) -> float:
        return self.times.command_timeout_ms / 1000

    async def _registered(self) -> dict[str, tuple[str, str] | None]:
        return await anyio.to_thread.run_sync(read_registered, self.program.folders.config_file)

    async def _forget_others(self, wanted: tuple[Collection, ...]) -> None:
        try:
            registered = await self._registered()
        except QmdFailed as damage:
            log.warning("Rebuilding the QMD index of %s: %s", self.agent, damage)
            await self.discard()
            return
        by_name = {collection.name: collection for collection in wanted}
        for name in registered:
            collection = by_name.get(name)
            if collection is None or not is_registered(collection, registered):
                await self.program.run("collection", "remove", "--", name, seconds=self._command_seconds)

    async def _register(self, collection: Collection) -> int:
        """Register and index a collection; return the number of files. Another process may have done so meanwhile."""
        arguments = ("--name", collection.name, "--mask", collection.pattern, "--", collection.folder)
        try:
            seconds = self.times.update_timeout_ms / 1000
            return parse_counts(await self.program.run("collection", "add", *arguments, seconds=seconds)).changed
        except QmdFailed:
            if not is_registered(collection, await self._registered()):
                raise
            return 0

    def _ready(self) -> dict[str, Collection]:
        registered = read_registered(self.program.folders.config_file)
        planned = plan_collections(self.library.note_folders, self.agent)
        return {collection.name: collection for collection in planned if is_registered(collection, registered)}

    def _discard(self) -> None:
        database = self.program.folders.database
        for file in (
            self.program.folders.config_file,
            *(database.with_name(database.name + end) for end in _SIDE_FILES),
        ):
            file.unlink(missing_ok=True)
