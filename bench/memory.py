"""How fast memory is indexed and searched, how much memory that takes, and how both grow."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import anyio
import numpy as np

from bench.measure import Sheet, median_ms
from retinue.core.clock import SystemClock
from retinue.core.trust import Trust
from retinue.memory.documents import Library, workspace_shelf
from retinue.memory.embed import BuiltInEmbedder, normalise
from retinue.memory.index import MemoryIndex
from retinue.memory.query import parse_query
from retinue.memory.search import Rules, search_view
from retinue.memory.sqlite import SqliteStore
from retinue.memory.stems import Stemmer
from retinue.memory.store import FileRecord, IndexIdentity, NewChunk
from retinue.storage.files import Root

_DIMS = 256
_QUESTIONS = 40


def run(*, full: bool) -> None:
    sheet = Sheet("memory")
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(_measure_sync, Path(folder), sheet)
    for chunks in (4_000, 100_000, *((1_000_000,) if full else ())):
        with tempfile.TemporaryDirectory() as folder:
            _measure_search(Path(folder), chunks, sheet)
    sheet.save()


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


async def _measure_sync(folder: Path, sheet: Sheet) -> None:
    dice = random.Random(1)
    lines = make_lines(dice, make_vocabulary(dice))
    notes = folder / "workspace" / "memory"
    notes.mkdir(parents=True)
    size = 0
    for number in range(1_000):
        text = f"# Note {number}\n\n" + "\n".join(next(lines) for _ in range(53)) + "\n"
        size += (notes / f"note-{number}.md").write_text(text)
    root = Root.open(folder / "workspace")
    index = MemoryIndex(
        SqliteStore(folder / "index.sqlite"),
        Library([workspace_shelf(root)]),
        SystemClock(),
        embedders=[BuiltInEmbedder()],
    )
    await _timed(index, sheet, f"first index of 1,000 files, {size / 1e6:.1f} MB", "s")
    await anyio.sleep(2.5)
    await index.sync()
    await _timed(index, sheet, "rescan, nothing changed", "ms")
    changed = notes / "note-500.md"
    changed.write_text(changed.read_text() + "- one more line about kestrels.\n")
    await _timed(index, sheet, "one file changed", "ms")
    await index.aclose()


async def _timed(index: MemoryIndex, sheet: Sheet, what: str, unit: str) -> None:
    began = time.perf_counter()
    report = await index.sync()
    took = time.perf_counter() - began
    sheet.row(what, took * (1000 if unit == "ms" else 1), unit, f"{report.changed} changed, {report.embedded} embedded")


def _measure_search(folder: Path, chunks: int, sheet: Sheet) -> None:
    dice = random.Random(2)
    words = make_vocabulary(dice)
    store = SqliteStore(folder / "index.sqlite")
    began = time.perf_counter()
    fill(store, chunks, make_lines(dice, words))
    sheet.row(f"{chunks:,} chunks: written", time.perf_counter() - began, "s", f"{store.size() / 1e6:.0f} MB on disk")
    stemmer, noise = Stemmer(), np.random.default_rng(3)
    today = date(2026, 1, 1)
    picked = [" ".join(dice.sample(words[:8_000], 5)) for _ in range(_QUESTIONS)]
    asked = [(parse_query(text), normalise(noise.normal(size=(1, _DIMS)).astype(np.float32))[0]) for text in picked]
    turn = iter(range(10**9))
    rules = replace(Rules(), half_life_days=None)

    def search() -> None:
        query, vector = asked[next(turn) % len(asked)]
        with store.reading() as view:
            search_view(view, query, vector, rules, stemmer, today)

    began = time.perf_counter()
    search()
    sheet.row(f"{chunks:,} chunks: first search", (time.perf_counter() - began) * 1000, "ms")
    for _ in range(_QUESTIONS):
        search()
    sheet.row(f"{chunks:,} chunks: search, warm", median_ms(search, runs=3 * _QUESTIONS), "ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sheet.row(f"{chunks:,} chunks: peak of the process so far", peak, "MB")
    store.close()


def fill(store: SqliteStore, chunks: int, lines: Iterator[str]) -> None:
    """Put so many chunks with random vectors into a store."""
    store.adopt(IndexIdentity("bench", "random", "", 400, 80))
    noise = np.random.default_rng(4)
    per_file = 20
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
                    Trust.AGENT,
                )
                for at in range(per_file)
            ]
            changes.append((FileRecord(f"memory/{file}.md", "memory", str(file), 1, 1), pieces))
        store.put(changes)
        hashes = [piece.hash for _, pieces in changes for piece in pieces]
        vectors = normalise(noise.normal(size=(len(hashes), _DIMS)).astype(np.float32))
        codes = noise.integers(-127, 128, size=(len(hashes), 20, _DIMS), dtype=np.int8)
        store.embed(dict(zip(hashes, vectors, strict=True)), dict(zip(hashes, codes, strict=True)))
