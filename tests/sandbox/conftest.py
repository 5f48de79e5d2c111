"""What runs commands in sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.toolkit.processes.command_table import CommandTable
from tests.sandbox.arena import skip_without
from tests.sandbox.workbench import MAIN, Bench


@pytest.fixture
async def table() -> AsyncIterator[CommandTable]:
    numbers = count(1)
    async with CommandTable(SystemClock(), lambda: f"{next(numbers):08x}00000000", grace=0.5) as opened:
        yield opened


@pytest.fixture
def bench(tmp_path: Path, table: CommandTable) -> Bench:
    made = Bench(tmp_path / "home", table, {"backend": "bubblewrap"})
    skip_without(made.sandboxes, made.sandboxes.confinement_of(MAIN))
    made.workspace.mkdir(parents=True)
    (made.workspace / "notes.txt").write_text("mine\n")
    (made.home / "retinue.json").write_text("{}")
    return made


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, bench: Bench) -> str:
    bench.settings["backend"] = request.param
    skip_without(bench.sandboxes, bench.sandboxes.confinement_of(MAIN))
    return str(request.param)
