"""Bits flipped in the files of the database: every row that SQLite still reads is kept."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from pathlib import Path

from tests.faults.flips import copy_state, fill_state, flip_bit, judge, read_state

from bench.measure import Sheet

CASES = 400


def run_salvage(sheet: Sheet, cases: int, seed: str) -> None:
    """Flip one bit at a time; raise `AssertionError` if a row is missing that SQLite reads from the damaged file."""
    logging.getLogger("retinue.storage").setLevel(logging.ERROR)
    for suffix, structure in (("", False), ("", True), ("-wal", False), ("-shm", False)):
        with tempfile.TemporaryDirectory() as place:
            _flip_bits(sheet, Path(place), suffix, random.Random(f"{seed}{suffix}{structure}"), cases, structure)


def _flip_bits(sheet: Sheet, place: Path, suffix: str, chance: random.Random, cases: int, structure: bool) -> None:
    path = place / "state.sqlite"
    fill_state(path, killed=bool(suffix))
    original = read_state(copy_state(path, place / "original"))
    total = readable = kept = 0
    for case in range(cases):
        damaged = copy_state(path, place / str(case))
        flip_bit(damaged.with_name(damaged.name + suffix), chance, structure=structure)
        verdict = judge(damaged, original, damaged.parent)
        if verdict.missed or verdict.invented:
            raise AssertionError(f"case {case} of state.sqlite{suffix}: {verdict}")
        total, readable, kept = total + verdict.total, readable + verdict.readable, kept + verdict.kept
        shutil.rmtree(damaged.parent)
    where = f"state.sqlite{suffix}{', in the structure of pages' if structure else ''}"
    sheet.row(
        f"a bit flipped in {where}", cases, "flips", f"{kept} of {total} rows kept, {readable} are readable by SELECT"
    )
