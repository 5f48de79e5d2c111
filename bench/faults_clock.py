"""Clocks that are set under jobs and heartbeats: each slot runs once, none is stuck and none is repeated."""

from __future__ import annotations

import logging
import tempfile
from datetime import timedelta
from pathlib import Path

import anyio
from tests.faults.clocks import JUMPS, KINDS, plans, set_clock_under_heartbeats, set_clock_under_job

from bench.measure import Sheet


def run_clock(sheet: Sheet, cases: int, seed: str) -> None:
    """Run so many cases for each jump and kind of job, and a tenth of them for heartbeats, which need a home each."""
    logging.getLogger("retinue.automation").setLevel(logging.ERROR)
    for jump in JUMPS:
        direction = "forward" if jump.total_seconds() > 0 else "back"
        size = f"{abs(jump).days} d" if abs(jump).days else "1 h"
        for kind in KINDS:
            _report(sheet, f"clock {direction} {size}: {kind}", anyio.run(_jobs, kind, jump, cases, seed))
        beats = anyio.run(_heartbeats, jump, max(2, cases // 10), seed)
        _report(sheet, f"clock {direction} {size}: heartbeat", beats)


def _report(sheet: Sheet, what: str, found: list[list[str]]) -> None:
    broken = [violation for violations in found for violation in violations]
    if broken:
        raise AssertionError(f"{what}: " + "\n".join(broken[:20]))
    sheet.row(what, len(found), "cases", "each slot ran once, none was stuck, none was repeated")


async def _jobs(kind: str, jump: timedelta, cases: int, seed: str) -> list[list[str]]:
    found = []
    for plan, chance in plans(jump, cases, seed):
        with tempfile.TemporaryDirectory() as place:
            found.append(await set_clock_under_job(Path(place), kind, plan, chance))
    return found


async def _heartbeats(jump: timedelta, cases: int, seed: str) -> list[list[str]]:
    found = []
    for plan, _ in plans(jump, cases, seed):
        with tempfile.TemporaryDirectory() as place:
            found.append(await set_clock_under_heartbeats(Path(place), plan))
    return found
