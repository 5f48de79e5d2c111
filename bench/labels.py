"""What labels cost: their share of a warm turn, and what a large workspace adds to it."""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import anyio
from tests.security.hijack.scene import Scene, open_scene
from tests.security.hijack.suites import OFFICE

from bench.measure import Sheet
from retinue.config import sinks
from retinue.core import labels, messages
from retinue.runtime.memory import pool
from retinue.runtime.turns import suspicions, user_message
from retinue.sessions import session
from retinue.storage.labels.command_traces import CommandTraces
from retinue.storage.provenance import AgentWrites
from retinue.testing.replies import calls, says
from retinue.toolkit.web import outflow

FILES, FOLDERS = 20_000, 1_000
TURNS = 60
FUNCTIONS: tuple[tuple[Any, str], ...] = (
    *((AgentWrites, name) for name in ("labels_of", "origin", "foreign_lines")),
    *((pool, "trust_of_files"), (outflow, "restrict_answer"), (messages, "label_of_all"), (labels, "mix")),
    *((session, "person_of"), (user_message, "record_person"), (suspicions, "record_suspicions")),
    *((sinks, "unasked_sinks"), (CommandTraces, "settle")),
)
"""The functions of labels that the rest of a turn calls."""


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
            share, count = await _measure_labels(scene)
        sheet.row("labels in a warm turn, CPU", share, "ms", f"{count:.0f} calls of their functions", goal=0.5)
        defaults = {
            "model": "test/test-model",
            "checkpoints": {"enabled": False},
        }  # they look at each file, twice a turn
        async with open_scene(Path(large), OFFICE, {"agents": {"defaults": defaults}}) as scene:
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


async def _measure_labels(scene: Scene) -> tuple[float, float]:
    """Return the CPU milliseconds and calls of a warm turn in the functions of labels, of the best of several."""
    times: list[float] = []
    counts: list[int] = []
    clock = _Clock()
    with ExitStack() as stack:
        for place, name in FUNCTIONS:
            stack.enter_context(_timed(place, name, clock))
        for number in range(TURNS):
            clock.spent, clock.calls = 0, 0
            await scene.say(f"Again {number}.", [says("Hello.")], session="warm")
            times.append(clock.spent / 1e6)
            counts.append(clock.calls)
    return min(times), sum(counts) / TURNS


class _Clock:
    """Adds up the CPU time of the outermost calls."""

    depth = calls = spent = 0


@contextmanager
def _timed(place: Any, name: str, clock: _Clock) -> Iterator[None]:
    """Measure a function wherever it was imported."""
    original = getattr(place, name)

    @wraps(original)
    def timed(*arguments: Any, **more: Any) -> Any:
        clock.depth += 1
        began = time.process_time_ns()
        try:
            return original(*arguments, **more)
        finally:
            clock.depth -= 1
            if clock.depth == 0:
                clock.spent += time.process_time_ns() - began
                clock.calls += 1

    places = [place, *(module for module in list(sys.modules.values()) if vars(module).get(name) is original)]
    for each in places:
        setattr(each, name, timed)
    try:
        yield
    finally:
        for each in places:
            setattr(each, name, original)
