"""Power failures that undo the last changes of the database: the log is cut after every frame.

These are the long versions of `tests/faults/test_power.py`.
"""

from __future__ import annotations

import random
import tempfile
from functools import partial
from pathlib import Path

import anyio
from tests.faults.power import STORIES, Aftermath, tell

from bench.measure import Sheet


def run_power(sheet: Sheet, cases: int | None = None, seed: int = 0) -> None:
    """Cut the log after every frame, or after that many of each story."""
    for story in STORIES:
        with tempfile.TemporaryDirectory() as place:
            chance = random.Random(f"{story} {seed}")
            anyio.run(tell, story, Path(place), partial(_cut, sheet, story, cases, chance))


async def _cut(sheet: Sheet, story: str, cases: int | None, chance: random.Random, aftermath: Aftermath) -> None:
    frames = aftermath.frames if cases is None else chance.sample(aftermath.frames, min(cases, len(aftermath.frames)))
    for length in frames:
        repeated = await aftermath.cut(length)
        if repeated:
            raise AssertionError(f"{story}: repeated after the log was cut at {length} bytes: {repeated}")
    sheet.row(f"power failure, {story}: log cut after a frame", len(frames), "cuts", "no effect was repeated")


if __name__ == "__main__":
    run_power(Sheet("faults_power"))
