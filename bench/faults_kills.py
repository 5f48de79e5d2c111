"""A gateway that is killed every three seconds. This is the long version of `tests/faults/test_spaced_kills.py`."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import anyio
from tests.faults.spaced_kills import kill_regularly
from tests.skills.killed_changes import check_killed_change

from bench.measure import Sheet

KILLS, SPACING_SECONDS = 200, 3.0


def run_kills(sheet: Sheet, cases: int = KILLS, seed: int = 0) -> None:
    """Kill a gateway that many times at a spacing of three seconds; no turn may be given up."""
    with tempfile.TemporaryDirectory() as place:
        found = anyio.run(kill_regularly, Path(place), cases, SPACING_SECONDS, random.Random(seed))
    if found.given_up:
        raise AssertionError("\n".join(found.given_up[:20]))
    note = f"{len(found.accepted)} messages acknowledged, 0 given up"
    sheet.row(f"kill -9 of the gateway every {SPACING_SECONDS:g} s", cases, "kills", note)


SKILL_KILLS = 200


def run_skill_kills(sheet: Sheet, cases: int = SKILL_KILLS) -> None:
    """Kill changes of an installed skill at every step; it must stay whole and usable."""
    for seed in range(cases):
        with tempfile.TemporaryDirectory() as place:
            check_killed_change(Path(place), seed)
    sheet.row("kill -9 while a skill is installed, updated, rolled back or removed", cases, "kills", "0 half-installed")


if __name__ == "__main__":
    run_kills(Sheet("faults_kills"))
