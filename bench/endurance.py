"""A gateway that is told to end under load again and again, and one that works for a long time."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import anyio
from tests.gateway.storms import Level, end_under_load, soak

from bench.measure import Sheet

ENDS, FEW_ENDS = 200, 10
SOAK_SECONDS, SHORT_SOAK_SECONDS = 20 * 60, 60


def run(*, full: bool) -> None:
    sheet = Sheet("endurance")
    ends = ENDS if full else FEW_ENDS
    with tempfile.TemporaryDirectory() as place:
        storm = anyio.run(end_under_load, Path(place), ends, 7)
    sheet.row("SIGTERM under load", storm.ends, "times", f"exit codes {dict(storm.codes)}")
    sheet.row("messages accepted meanwhile", len(storm.accepted), "", f"{storm.repeated} sent twice, kept once")
    sheet.row("lost, doubled, out of order or unanswered", len(storm.wrong), "", "; ".join(storm.wrong[:3]))
    seconds = SOAK_SECONDS if full else SHORT_SOAK_SECONDS
    with tempfile.TemporaryDirectory() as place:
        levels = anyio.run(soak, Path(place), seconds, seconds / 40)
    _report(levels, sheet)
    sheet.save()


def _report(levels: Sequence[Level], sheet: Sheet) -> None:
    """The second quarter against the last: the first is a process that warms up."""
    quarter = len(levels) // 4
    early, late = levels[quarter : 2 * quarter], levels[-quarter:]
    sheet.row("soak", levels[-1].turns, "turns", f"in {levels[-1].after:.0f} s")
    before, after = (median(level.megabytes for level in part) for part in (early, late))
    sheet.row("memory, last quarter against the second", after / before, "times", f"{before:.1f} MB, then {after:.1f}")
    before, after = (median(level.descriptors for level in part) for part in (early, late))
    sheet.row("open files, last quarter against the second", after - before, "files", f"{before:g}, then {after:g}")
