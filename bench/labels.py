"""What labels cost: their share of a warm turn, and what a large workspace adds to it."""

from __future__ import annotations

import cProfile
import logging
import pstats
import tempfile
import time
from pathlib import Path

import anyio
from tests.security.hijack.scene import Scene, open_scene
from tests.security.hijack.suites import OFFICE

from bench.measure import Sheet
from retinue.testing.replies import calls, says

FILES, FOLDERS = 20_000, 1_000
TURNS = 60
PARTS = (
    *("core/labels.py", "storage/provenance.py", "storage/labels/", "toolkit/file_labels.py", "toolkit/taint.py"),
    *("toolkit/web/outflow.py", "config/sinks.py", "turns/suspicions.py", "core/people.py"),
)
"""The modules that exist for labels."""
ENTRIES = ("trust_of_files", "label_of_all", "restrict_answer", "unasked_sinks", "person_of", "_label", "record_person")


def run(*, full: bool) -> None:
    sheet = Sheet("labels")
    logging.disable(logging.ERROR)
    try:
        anyio.run(_measure, sheet)
    finally:
        logging.disable(logging.NOTSET)
    sheet.save()


async def _measure(sheet: Sheet) -> None:
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        async with open_scene(Path(small), OFFICE) as scene:
            plain = await _time_turns(scene)
            share, count = await _profile_turns(scene)
        sheet.row("labels in a warm turn", share, "ms", f"{count:.0f} calls, with the cost of counting", goal=0.5)
        async with open_scene(Path(large), OFFICE) as scene:
            for number in range(FILES):
                folder = scene.workspace / f"d{number % FOLDERS}"
                folder.mkdir(exist_ok=True)
                (folder / f"f{number}.txt").write_text("x\n")
            first = time.process_time()
            await scene.say("Look.", [calls("exec", command="true"), says("ok")])
            sheet.row(f"the first command with {FILES:,} files, CPU", (time.process_time() - first) * 1000, "ms")
            added = await _time_turns(scene) - plain
        sheet.row(f"{FILES:,} files add to a warm turn, CPU", added, "ms", goal=5)


async def _time_turns(scene: Scene) -> float:
    """Return the CPU milliseconds of the best of several warm turns; others on the machine do not count."""
    best = float("inf")
    for number in range(TURNS):
        began = time.process_time()
        await scene.say(f"Hello {number}.", [says("Hello.")], session="warm")
        best = min(best, (time.process_time() - began) * 1000)
    return best


async def _profile_turns(scene: Scene) -> tuple[float, float]:
    """Return the CPU milliseconds and calls of a warm turn in what exists for labels."""
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    for number in range(TURNS):
        await scene.say(f"Again {number}.", [says("Hello.")], session="warm")
    profile.disable()
    seconds = count = 0.0
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, name), (_, made, own, whole, _) in stats.items():
        is_part = any(part in file for part in PARTS)
        if name in ENTRIES and "retinue" in file and not is_part:
            seconds += whole
            count += made
        elif is_part:
            seconds += own
            count += made
    return seconds / TURNS * 1000, count / TURNS
