"""Many processes, sudden deaths, full disks and unreasonable amounts of notes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.memory.index import narrowed
from tests.memory.conftest import OpenIndex, WriteNote

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

QUESTIONS = ("harbour wall 17", "bread 3", "who repaired the boat", "XK-00021-A")


def start(job: str, workspace: Path, database: Path, amount: str = "0") -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.memory.worker", job, str(workspace), str(database), amount]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def index_whole(workspace: Path, database: Path) -> None:
    process = start("index", workspace, database)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def write_notes(write: WriteNote, count: int, lines: int = 30, tag: str = "") -> None:
    for n in range(count):
        text = "\n".join(f"Line {k} of the harbour wall {n} {tag}, bread {k % 5}, XK-{n:05}-A" for k in range(lines))
        write(f"memory/{n:04}.md", text + "\n")


def test_twenty_processes_search_while_one_indexes(write: WriteNote, workspace: Path, tmp_path: Path) -> None:
    database = tmp_path / "index.sqlite"
    write_notes(write, 60)
    index_whole(workspace, database)
    searchers = [start("search", workspace, database, "2.5") for _ in range(20)]
    for round_number in range(3):
        write_notes(write, 60, tag=f"again {round_number}")
        indexer = start("index", workspace, database)
        out, err = indexer.communicate(timeout=120)
        assert indexer.returncode == 0, err
        assert json.loads(out) == {"changed": 60, "reason": None}
    for searcher in searchers:
        out, err = searcher.communicate(timeout=120)
        assert searcher.returncode == 0, err
        assert int(out) >= 1


async def test_a_process_that_is_killed_while_indexing_leaves_an_index_that_can_be_finished(
    open_index: OpenIndex, write: WriteNote, workspace: Path, tmp_path: Path
) -> None:
    write_notes(write, 400, lines=40)
    whole = tmp_path / "whole.sqlite"
    began = time.monotonic()
    index_whole(workspace, whole)
    took = time.monotonic() - began
    dice = random.Random(7)
    torn = tmp_path / "index.sqlite"
    for _ in range(12):
        victim = start("index", workspace, torn)
        time.sleep(dice.uniform(0.2, 1.0) * took)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    index_whole(workspace, torn)
    mended = open_index()
    expected = open_index()
    expected.store = type(mended.store)(whole)  # type: ignore[call-arg]
    for question in QUESTIONS:
        rules = narrowed(mended.rules, max_results=20, min_score=0.0)
        ours = (await mended.search(question, rules=rules)).hits
        assert ours
        assert ours == (await expected.search(question, rules=rules)).hits
    assert (await mended.status()).totals == (await expected.status()).totals
    expected.store.close()


def test_a_full_disk_is_said_and_the_index_goes_on_afterwards(
    write: WriteNote, workspace: Path, tmp_path: Path
) -> None:
    database = tmp_path / "index.sqlite"
    write_notes(write, 5)
    index_whole(workspace, database)
    write_notes(write, 300, lines=60)
    full = start("full", workspace, database, str(database.stat().st_size + 200_000))
    out, err = full.communicate(timeout=60)
    assert full.returncode == 0, err
    assert out.startswith("DiskFull: "), out
    again = start("index", workspace, database)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert json.loads(out)["changed"] > 0


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
