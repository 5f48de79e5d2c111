"""A gateway without descriptors or memory does not burn CPU time, does not flood its log, and can be stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.gateway.shutdown import UNFINISHED
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from tests.faults.limits import PROGRAMS, end_without_resources, is_waiting, limit_descriptors, open_connections
from tests.gateway.conftest import Hall, gateway_process, raw_socket

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BLOCKED = """
import asyncio, sys, time
from retinue.gateway.shutdown import ShutdownGuard, ShutdownRequest, handling_signals

async def block():
    guard = ShutdownGuard(0.2, 0.1)
    with handling_signals(ShutdownRequest(guard), lambda: None):
        print("ready", flush=True)
        while True:
            time.sleep(0.01)

asyncio.run(block())
"""


@pytest.mark.parametrize("loop", sorted(PROGRAMS))
async def test_connections_wait_at_the_descriptor_limit_and_are_served_later(tmp_path: Path, loop: str) -> None:
    async with ModelServer() as model:
        hall = Hall(HomePaths(tmp_path / "home"), model)
        hall.write_config()
        async with gateway_process(hall, program=PROGRAMS[loop]) as process:
            limit_descriptors(process, 40)
            opened = open_connections(hall)
            await is_waiting(hall)
            for connection in opened:
                connection.close()
            async with raw_socket(hall) as raw:
                assert (await raw.result("status"))["version"]
            assert await process.terminate() == 0
        lines = hall.home.log_file.read_text().splitlines()
        assert len([line for line in lines if "connections" in line]) <= 10
        assert not [line for line in lines if "Traceback" in line]


async def test_gateways_without_memory_or_descriptors_end_on_sigterm(tmp_path: Path) -> None:
    async with ModelServer() as model:
        hall = Hall(HomePaths(tmp_path / "home"), model)
        hall.write_config()
        ends = await end_without_resources(hall, 8, seed=11)
    assert ends.hung == 0
    assert ends.lost == []


def test_a_blocked_gateway_ends_with_a_message_after_the_time_limit() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == UNFINISHED
    assert "did not finish its shutdown within 0.2 seconds" in complaint
    assert "Accepted messages are kept" in complaint
