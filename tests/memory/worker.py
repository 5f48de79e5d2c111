"""A process that indexes or searches, for the tests to run many of: `python -m tests.memory.worker index|search`."""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from functools import partial
from pathlib import Path

import anyio

from retinue.core.clock import SystemClock
from retinue.core.errors import RetinueError
from retinue.memory.embedding import BuiltInEmbedder
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Corpus, Library, workspace_notes
from retinue.memory.store.sqlite import SqliteStore
from retinue.storage.files import Root

READY = "ready\n"


def open_index(workspace: Path, database: Path) -> MemoryIndex:
    library = Library([workspace_notes(Root.open(workspace))])
    return MemoryIndex(SqliteStore(database), Corpus(library), SystemClock(), embedders=[BuiltInEmbedder()])


async def search(index: MemoryIndex, seconds: float) -> None:
    """Search until the time is over, and fail where a result is not whole.

    Every line of every note speaks of the harbour and of its generation, so that half a note, or one of two
    generations, would show; and there are always more notes than a result has places.
    """
    end = time.monotonic() + seconds
    searches = 0
    print(READY, end="", flush=True)
    while time.monotonic() < end or not searches:
        result = await index.search("harbour wall", refresh=False)
        assert (result.mode, result.reason) == ("hybrid", None), result
        limits = index.rules.limits
        room = limits.total_chars - sum(len(hit.snippet) for hit in result.hits)
        assert len(result.hits) == limits.max_results or room < limits.snippet_chars, result
        for hit in result.hits:
            lines = hit.snippet.split("\n")
            assert len(lines) == hit.end_line - hit.start_line + 1, hit
            assert len({tuple(re.findall(r"wall \d+|again \d+", line)) for line in lines}) == 1, hit
        searches += 1
    print(searches)


async def main(job: str, workspace: str, database: str, amount: str) -> None:
    index = open_index(Path(workspace), Path(database))
    if job == "search":
        await search(index, float(amount))
    elif job in ("index", "force"):
        print(READY, end="", flush=True)
        report = await index.sync(force=job == "force")
        print(json.dumps({"changed": report.changed, "reason": report.reason}))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(amount), int(amount)))
        try:
            await index.sync()
        except RetinueError as error:
            print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:5]))
