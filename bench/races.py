"""Symlink-swap races against every file operation; one escape is an error."""

from __future__ import annotations

import anyio
from tests.security.races import OPERATIONS, memory_place, race

from bench.measure import Sheet

RACES, SHORT_RACES = 100_000, 2_000


def run(*, full: bool) -> None:
    sheet = Sheet("races")
    times = RACES if full else SHORT_RACES
    for operation in OPERATIONS:
        with memory_place() as place:
            found = anyio.run(race, operation, times, place)
        if found.escapes:
            raise AssertionError(f"{operation.__name__}: {found.escapes[:5]}")
        done = found.outcomes["done"]
        sheet.row(f"escapes of {operation.__name__}", 0, "", f"{times:,} races, {done:,} calls worked")
    sheet.save()
