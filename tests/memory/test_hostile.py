"""Many processes, sudden deaths, full disks and unreasonable amounts of notes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.memory.conftest import OpenIndex, WriteNote
from tests.memory.kills import compare_with_new, finish, kill_while_indexing, start, write_notes
from tests.memory.worker import READY

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def test_twenty_processes_search_while_one_indexes(workspace: Path, tmp_path: Path) -> None:
    database = tmp_path / "index.sqlite"
    write_notes(workspace, 60)
    finish(start("index", workspace, database))
    searchers = [start("search", workspace, database, "1.5") for _ in range(20)]
    for searcher in searchers:
        assert searcher.stdout is not None
        assert searcher.stdout.readline() == READY
    for round_number in range(3):
        write_notes(workspace, 60, tag=f"again {round_number}")
        said = finish(start("index", workspace, database)).splitlines()
        assert json.loads(said[-1]) == {"changed": 60, "reason": None}
    for searcher in searchers:
        assert int(finish(searcher)) >= 1


async def test_processes_that_are_killed_while_indexing_leave_an_index_that_can_be_finished(
    workspace: Path, tmp_path: Path
) -> None:
    database = tmp_path / "index.sqlite"
    interrupted = kill_while_indexing(workspace, database, 15, notes=100, dice=random.Random(7))
    assert interrupted > 5
    await compare_with_new(workspace, database)


def test_a_full_disk_is_said_and_the_index_goes_on_afterwards(workspace: Path, tmp_path: Path) -> None:
    database = tmp_path / "index.sqlite"
    write_notes(workspace, 5)
    finish(start("index", workspace, database))
    write_notes(workspace, 300, lines=60)
    full = start("full", workspace, database, str(database.stat().st_size + 200_000))
    out, err = full.communicate(timeout=60)
    assert full.returncode == 0, err
    assert out.startswith("DiskFull: "), out
    said = finish(start("index", workspace, database)).splitlines()
    assert json.loads(said[-1])["changed"] > 0


async def test_a_great_many_tiny_notes(open_index: OpenIndex, workspace: Path) -> None:
    for folder in range(20):
        place = workspace / "memory" / f"{folder:02}"
        place.mkdir()
        for n in range(1_000):
            (place / f"{n}.md").write_text(f"n{folder * 1000 + n} note")
    index = open_index(embedders=[])
    report = await index.sync()
    assert (report.totals.files, report.problems) == (20_000, ())
    (hit, *_) = (await index.search("n17123", seconds=30)).hits
    assert hit.path == "memory/17/123.md"


async def test_a_line_of_ten_megabytes(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/line.md", "filler words here " * 290_000 + "needle haystack " + "more filler text " * 290_000)
    index = open_index(embedders=[])
    (hit, *_) = (await index.search("needle haystack", seconds=60)).hits
    assert "needle haystack" in hit.snippet
