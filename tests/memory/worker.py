"""A process that indexes or searches, for the tests to run many of: `python -m tests.memory.worker index|search`."""

from __future__ import annotations

import json
import resource
import sys
import time
from functools import partial
from pathlib import Path

import anyio

from retinue.core.clock import SystemClock
from retinue.core.errors import RetinueError
from retinue.memory.documents import Library, workspace_shelf
from retinue.memory.embed import BuiltInEmbedder
from retinue.memory.index import MemoryIndex
from retinue.memory.sqlite import SqliteStore
from retinue.storage.files import Root


def open_index(workspace: Path, database: Path) -> MemoryIndex:
    library = Library([workspace_shelf(Root.open(workspace))])
    return MemoryIndex(SqliteStore(database), library, SystemClock(), embedders=[BuiltInEmbedder()])


async def search(index: MemoryIndex, seconds: float) -> None:
    """Search until the time is over. Every line of every note speaks of the harbour, so that half a note would show."""
    end = time.monotonic() + seconds
    searches = 0
    while time.monotonic() < end or not searches:
        result = await index.search("harbour wall", refresh=False)
        for hit in result.hits:
            assert hit.snippet.count("\n") == hit.end_line - hit.start_line, hit
            assert "harbour" in hit.snippet
        searches += 1
    print(searches)


async def main(job: str, workspace: str, database: str, amount: str) -> None:
    index = open_index(Path(workspace), Path(database))
    if job == "search":
        await search(index, float(amount))
    elif job == "index":
        report = await index.sync()
        print(json.dumps({"changed": report.changed, "reason": report.reason}))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(amount), int(amount)))
        try:
            await index.sync()
        except RetinueError as error:
            print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:5]))
