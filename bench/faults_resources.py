"""Gateways at the limits of the system: CPU time and log without descriptors, and whether all can be stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
from tests.faults.limits import (
    PROGRAMS,
    end_without_resources,
    is_waiting,
    limit_descriptors,
    open_connections,
    usage_of,
)
from tests.gateway.conftest import Hall, gateway_process

from bench.measure import Sheet
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer

WATCHED_SECONDS = 10.0
MAX_CORES, MAX_LOG_KILOBYTES = 0.05, 1.0


def run_resources(sheet: Sheet, cases: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        anyio.run(_run, Path(place), sheet, cases, seed)


async def _run(place: Path, sheet: Sheet, cases: int, seed: int) -> None:
    async with ModelServer() as model:
        for loop in sorted(PROGRAMS):
            hall = Hall(HomePaths(place / loop), model)
            hall.write_config()
            await _watch_without_descriptors(hall, loop, sheet)
        hall = Hall(HomePaths(place / "ends"), model)
        hall.write_config()
        ends = await end_without_resources(hall, cases, seed)
    if ends.hung or ends.lost:
        raise AssertionError(f"{ends.hung} gateways did not end by themselves, {len(ends.lost)} messages were lost")
    note = f"longest {ends.longest:.1f} s, exit codes {sorted(set(ends.codes))}, no accepted message lost"
    sheet.row("SIGTERM without memory or descriptors", cases, "ends", note)


async def _watch_without_descriptors(hall: Hall, loop: str, sheet: Sheet) -> None:
    async with gateway_process(hall, program=PROGRAMS[loop]) as process:
        limit_descriptors(process, 40)
        opened = open_connections(hall)
        await is_waiting(hall)
        before = usage_of(process)
        await anyio.sleep(WATCHED_SECONDS)
        after = usage_of(process)
        for connection in opened:
            connection.close()
        code = await process.terminate()
    cores = (after.cpu - before.cpu) / WATCHED_SECONDS
    logged = (after.log_bytes - before.log_bytes) / 1000 / WATCHED_SECONDS
    sheet.row(
        f"at the descriptor limit, {loop}", round(cores, 3), "cores", f"{logged:.2f} KB/s of log, ended with {code}"
    )
    if cores > MAX_CORES or logged > MAX_LOG_KILOBYTES or code != 0:
        raise AssertionError(f"at the descriptor limit: {cores:.2f} cores, {logged:.1f} KB/s of log, exit code {code}")
