"""A flipped bit in the database costs at most the rows that SQLite can no longer read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.flips import copy_state, fill_state, flip_bit, judge, read_state

pytestmark = pytest.mark.slow

CASES = 20


@pytest.mark.parametrize(
    ("suffix", "structure"), [("", False), ("", True), ("-wal", False)], ids=["anywhere", "structure", "log"]
)
def test_all_rows_that_sqlite_reads_are_kept(tmp_path: Path, suffix: str, structure: bool) -> None:
    path = tmp_path / "state.sqlite"
    fill_state(path, killed=bool(suffix))
    original = read_state(copy_state(path, tmp_path / "original"))
    chance = random.Random(f"salvage{suffix}{structure}")
    for case in range(CASES):
        damaged = copy_state(path, tmp_path / str(case))
        flip_bit(damaged.with_name(damaged.name + suffix), chance, structure=structure)
        verdict = judge(damaged, original, tmp_path / str(case))
        assert (verdict.missed, verdict.invented) == (0, 0), (case, verdict)
