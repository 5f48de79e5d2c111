"""The program's index of one agent's notes: its collections kept as they should be, updated, embedded, searched."""

from __future__ import annotations

import logging
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.memory.documents import Library
from retinue.memory.errors import QmdFailed
from retinue.memory.qmd.answers import Lead, UpdateCounts, parse_counts, parse_leads
from retinue.memory.qmd.collections import Collection, is_registered, plan_collections, read_registered
from retinue.memory.qmd.program import QmdProgram
from retinue.memory.qmd.questions import ask_by_meaning, ask_for_all, ask_for_any
from retinue.memory.qmd.results import merge_leads
from retinue.memory.query import Query
from retinue.memory.settings import QmdUpdate

log = logging.getLogger(__name__)

SearchMode = Literal["search", "vsearch", "query"]
MOST_LEADS = 100
_SIDE_FILES = ("", "-wal", "-shm")


class QmdIndex(Struct, frozen=True):
    """Knows the program's commands; each raises `QmdFailed` where the program cannot do it."""

    program: QmdProgram
    library: Library
    agent: str
    mode: SearchMode
    times: QmdUpdate

    @property
    def by_words(self) -> bool:
        """Whether it searches by words alone, without any model."""
        return self.mode == "search"

    async def version(self) -> str:
        return (await self.program.run("--version", seconds=self._command_seconds)).strip()[:80]

    async def collections(self) -> dict[str, Collection]:
        """The collections that can be searched, by name; empty where the program knows none of them yet."""
        return await anyio.to_thread.run_sync(self._ready)

    async def wanted(self) -> tuple[Collection, ...]:
        """The collections that there should be."""
        return await anyio.to_thread.run_sync(plan_collections, self.library.shelves, self.agent)

    async def update(self) -> UpdateCounts:
        """Register what should be indexed, forget what should not, and take in what changed."""
        wanted = await self.wanted()
        await self._forget_others(wanted)
        registered = await self._registered()
        new = [await self._register(collection) for collection in wanted if not is_registered(collection, registered)]
        if not wanted:
            return UpdateCounts(0, 0, 0)
        counts = parse_counts(await self.program.run("update", seconds=self.times.update_timeout_ms / 1000))
        return replace(counts, changed=counts.changed + sum(new))

    async def embed(self) -> None:
        """Make the vectors that are missing; this is what needs a model."""
        await self.program.run("embed", seconds=self.times.embed_timeout_ms / 1000)

    async def search(self, query: Query, most: int, seconds: float) -> tuple[Lead, ...]:
        """Files about a question, best first. By words: those with all of them, then those with some."""
        names = [name for name in await self.collections() for name in ("-c", name)]
        if not names:
            return ()
        options = ("--json", "-n", str(min(MOST_LEADS, most)), *names, "--")
        end = anyio.current_time() + seconds
        if not self.by_words:
            answer = await self.program.run(self.mode, *options, ask_by_meaning(query), seconds=seconds)
            return parse_leads(answer)
        every = ask_for_all(query)
        found = parse_leads(await self.program.run("search", *options, every, seconds=seconds))
        one_by_one = ask_for_any(query)
        if len(found) >= most or "\n" not in one_by_one:
            return found
        left = max(0.01, end - anyio.current_time())
        more = await self.program.run("query", "--no-rerank", *options, one_by_one, seconds=left)
        return merge_leads(found, parse_leads(more))

    async def discard(self) -> None:
        """Throw the program's index and configuration away; both are derived."""
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
            log.warning("QMD's index of %s is made again: %s", self.agent, damage)
            await self.discard()
            return
        by_name = {collection.name: collection for collection in wanted}
        for name in registered:
            collection = by_name.get(name)
            if collection is None or not is_registered(collection, registered):
                await self.program.run("collection", "remove", "--", name, seconds=self._command_seconds)

    async def _register(self, collection: Collection) -> int:
        """Register a collection, and so index it: the number of files. Another process may have done so meanwhile."""
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
        planned = plan_collections(self.library.shelves, self.agent)
        return {collection.name: collection for collection in planned if is_registered(collection, registered)}

    def _discard(self) -> None:
        database = self.program.folders.database
        for file in (
            self.program.folders.config_file,
            *(database.with_name(database.name + end) for end in _SIDE_FILES),
        ):
            file.unlink(missing_ok=True)
