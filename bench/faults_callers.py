"""Callers that use one session at the same time, through every entry point.

These are the long versions of `tests/faults/test_callers.py`.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import anyio
from tests.faults.callers import ENTRIES, open_crowd, send_all

from bench.measure import Sheet

CALLERS = 500


def run_callers(sheet: Sheet, cases: int = CALLERS, seed: int = 0) -> None:
    """Let that many callers send a message to one session at the same time, for each entry point."""
    for entry in ENTRIES:
        with tempfile.TemporaryDirectory() as place:
            anyio.run(_send, sheet, Path(place), entry, cases, random.Random(f"{entry} {seed}"))


async def _send(sheet: Sheet, place: Path, entry: str, cases: int, chance: random.Random) -> None:
    began = time.perf_counter()
    async with open_crowd(place, chance) as (hall, model):
        wrong = await send_all(hall, model, entry, cases, chance)
    if wrong:
        raise AssertionError("\n".join(wrong[:20]))
    note = f"each received its own answer, in {time.perf_counter() - began:.0f} s"
    sheet.row(f"callers on one session, {entry}", cases, "callers", note)


if __name__ == "__main__":
    run_callers(Sheet("faults_callers"))
