"""How fast memory is indexed and searched, how much memory that takes, and how both grow.

Every step runs in a process of its own, so that the memory it needs is its own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from msgspec.structs import replace

from bench.measure import PYTHON, Sheet, median_ms
from retinue.core.clock import SystemClock
from retinue.core.labels import Label
from retinue.memory.embedding import BuiltInEmbedder, normalise
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Corpus, Library, workspace_notes
from retinue.memory.search.hybrid import search_view
from retinue.memory.search.query import parse_query
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import FileRecord, IndexIdentity, NewChunk
from retinue.memory.store.sqlite import SqliteStore
from retinue.storage.files import Root

_DIMS = 256
_QUESTIONS = 40
_SCALES = (4_000, 100_000)
_FULL_SCALE = 1_000_000
_FILES, _LINES_A_FILE = 1_000, 53


def run(*, full: bool) -> None:
    sheet = Sheet("memory")
    with tempfile.TemporaryDirectory() as folder:
        _report(_in_process("sync", Path(folder)), sheet)
    searches: dict[int, float] = {}
    for chunks in (*_SCALES, *((_FULL_SCALE,) if full else ())):
        with tempfile.TemporaryDirectory() as folder:
            _report(_in_process("write", Path(folder), chunks), sheet)
            rows = _in_process("search", Path(folder), chunks)
            _report(rows, sheet)
            searches[chunks] = next(row["value"] for row in rows if "warm" in row["what"])
    for few, many in zip(searches, list(searches)[1:], strict=False):
        growth = searches[many] / searches[few]
        sheet.row(f"search, from {few:,} to {many:,} chunks", growth, "times", f"for {many / few:g} times the chunks")
    sheet.save()


def _in_process(step: str, folder: Path, chunks: int = 0) -> list[dict[str, Any]]:
    argv = [PYTHON, "-m", "bench.memory", step, str(folder), str(chunks)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def _report(rows: list[dict[str, Any]], sheet: Sheet) -> None:
    for row in rows:
        sheet.row(row["what"], row["value"], row["unit"], row["note"])


def _row(what: str, value: float, unit: str, note: str = "") -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "note": note}


def _peak(what: str) -> dict[str, Any]:
    """The most memory that this process had; what the system counts per user would start with that of the parent."""
    status = Path("/proc/self/status").read_text()
    return _row(what, int(status.partition("VmHWM:")[2].split()[0]) / 1024, "MB")


def make_vocabulary(dice: random.Random, size: int = 30_000) -> list[str]:
    """Words as frequent as in a language: the n-th is drawn about 1/n as often as the first."""
    syllables = ("ka", "re", "mo", "ti", "lu", "sen", "dor", "vi", "chel", "gra", "fo", "ston", "qui", "zer", "ny")
    return ["".join(dice.choices(syllables, k=dice.choice((2, 2, 3, 3, 4)))) for _ in range(size)]


def make_lines(dice: random.Random, words: list[str]) -> Iterator[str]:
    weights = np.cumsum(1 / np.arange(3, len(words) + 3)).tolist()
    while True:
        batch = dice.choices(words, cum_weights=weights, k=12_000)
        for at in range(0, len(batch), 12):
            yield f"- {' '.join(batch[at : at + 12])}."


async def _measure_sync(folder: Path) -> list[dict[str, Any]]:
    dice = random.Random(1)
    lines = make_lines(dice, make_vocabulary(dice))
    notes = folder / "workspace" / "memory"
    notes.mkdir(parents=True)
    size = 0
    for number in range(_FILES):
        text = f"# Note {number}\n\n" + "\n".join(next(lines) for _ in range(_LINES_A_FILE)) + "\n"
        size += (notes / f"note-{number}.md").write_text(text)
    index = MemoryIndex(
        SqliteStore(folder / "index.sqlite"),
        Corpus(Library([workspace_notes(Root.open(folder / "workspace"))])),
        SystemClock(),
        embedders=[BuiltInEmbedder()],
    )
    rows = [await _timed(index, f"first index of {_FILES:,} files, {size / 1e6:.1f} MB", "s")]
    await anyio.sleep(2.5)
    await index.sync()
    rows.append(await _timed(index, "rescan, nothing changed", "ms"))
    changed = notes / "note-500.md"
    changed.write_text(changed.read_text() + "- one more line about kestrels.\n")
    rows.append(await _timed(index, "one file changed", "ms"))
    await index.aclose()
    return [*rows, _peak("first index: peak of the process")]


async def _timed(index: MemoryIndex, what: str, unit: str) -> dict[str, Any]:
    began = time.perf_counter()
    report = await index.sync()
    took = time.perf_counter() - began
    note = f"{report.changed} changed, {report.embedded} embedded"
    return _row(what, took * (1000 if unit == "ms" else 1), unit, note)


def _measure_writing(folder: Path, chunks: int) -> list[dict[str, Any]]:
    dice = random.Random(2)
    store = SqliteStore(folder / "index.sqlite")
    seconds = fill(store, chunks, make_lines(dice, make_vocabulary(dice)))
    size = f"{store.size() / 1e6:.0f} MB on disk"
    store.close()
    return [_row(f"{chunks:,} chunks: written", seconds, "s", size), _peak(f"{chunks:,} chunks: peak of the writer")]


def _measure_search(folder: Path, chunks: int) -> list[dict[str, Any]]:
    dice = random.Random(2)
    words = make_vocabulary(dice)
    store = SqliteStore(folder / "index.sqlite")
    stemmer, noise = Stemmer(), np.random.default_rng(3)
    today = date(2026, 1, 1)
    picked = [" ".join(dice.sample(words[:8_000], 5)) for _ in range(_QUESTIONS)]
    asked = [(parse_query(text), normalise(noise.normal(size=(1, _DIMS)).astype(np.float32))[0]) for text in picked]
    turn = iter(range(10**9))
    rules = replace(SearchRules(), half_life_days=None)

    def search() -> None:
        query, vector = asked[next(turn) % len(asked)]
        with store.reading() as view:
            search_view(view, query, vector, rules, stemmer, today)

    began = time.perf_counter()
    search()
    first = (time.perf_counter() - began) * 1000
    for _ in range(_QUESTIONS):
        search()
    warm = median_ms(search, runs=3 * _QUESTIONS)
    store.close()
    return [
        _row(f"{chunks:,} chunks: first search", first, "ms"),
        _row(f"{chunks:,} chunks: search, warm", warm, "ms"),
        _peak(f"{chunks:,} chunks: peak of the searcher"),
    ]


def fill(store: SqliteStore, chunks: int, lines: Iterator[str]) -> float:
    """Put so many chunks with random vectors into a store; how long the store took for it."""
    store.adopt(IndexIdentity("bench", "random", "", 400, 80))
    noise = np.random.default_rng(4)
    per_file = 20
    seconds = 0.0
    for start in range(0, chunks, 2_000):
        changes = []
        for file in range(start // per_file, min(start + 2_000, chunks) // per_file):
            pieces = [
                NewChunk(
                    20 * at + 1,
                    20 * at + 20,
                    "\n".join(next(lines) for _ in range(20)),
                    f"file {file}",
                    f"{file}-{at}",
                    262,
                    Label.AGENT,
                )
                for at in range(per_file)
            ]
            changes.append((FileRecord(f"memory/{file}.md", "memory", str(file), 1, 1), pieces))
        hashes = [piece.hash for _, pieces in changes for piece in pieces]
        vectors = normalise(noise.normal(size=(len(hashes), _DIMS)).astype(np.float32))
        codes = noise.integers(-127, 128, size=(len(hashes), 20, _DIMS), dtype=np.int8)
        began = time.perf_counter()
        store.put(changes)
        store.embed(dict(zip(hashes, vectors, strict=True)), dict(zip(hashes, codes, strict=True)))
        seconds += time.perf_counter() - began
    return seconds


def _measure(step: str, folder: Path, chunks: int) -> list[dict[str, Any]]:
    match step:
        case "sync":
            return anyio.run(_measure_sync, folder)
        case "write":
            return _measure_writing(folder, chunks)
        case _:
            return _measure_search(folder, chunks)


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
