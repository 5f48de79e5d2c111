"""Clocks that are set under jobs and heartbeats; `python -m bench faults` runs more of these cases."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.faults.clocks import JUMPS, KINDS, plans, set_clock_under_heartbeats, set_clock_under_job

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_each_slot_of_a_job_runs_once_and_none_is_stuck(tmp_path: Path, kind: str, jump: timedelta) -> None:
    for number, (plan, chance) in enumerate(plans(jump, 3, f"tests {kind}")):
        (tmp_path / str(number)).mkdir()
        assert await set_clock_under_job(tmp_path / str(number), kind, plan, chance) == [], plan


@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_heartbeats_are_neither_stuck_nor_repeated(tmp_path: Path, jump: timedelta) -> None:
    ((plan, _),) = plans(jump, 1, "tests")
    assert await set_clock_under_heartbeats(tmp_path, plan) == [], plan
