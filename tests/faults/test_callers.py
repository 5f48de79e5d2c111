"""Callers that use one session at the same time: each receives the answer to its own message."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest

from tests.faults.callers import COMMAND, ENTRIES, open_crowd, send_all

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CASES = 20
MAX_CALLERS, MAX_COMMANDS = 40, 6


@pytest.mark.parametrize("case", range(CASES))
async def test_every_caller_receives_the_answer_to_its_own_message(tmp_path: Path, case: int) -> None:
    chance = random.Random(f"callers {case}")
    entry = list(ENTRIES)[case % len(ENTRIES)]
    count = chance.randint(2, MAX_COMMANDS if entry == COMMAND else MAX_CALLERS)
    async with open_crowd(tmp_path, chance) as (hall, model):
        assert await send_all(hall, model, entry, count, chance) == []


async def test_callers_of_all_entry_points_receive_the_answers_to_their_own_messages(tmp_path: Path) -> None:
    chance = random.Random("all entry points")
    wrong: list[str] = []

    async def send(entry: str) -> None:
        wrong.extend(await send_all(hall, model, entry, 4, chance))

    async with open_crowd(tmp_path, chance) as (hall, model), anyio.create_task_group() as tasks:
        for entry in ENTRIES:
            tasks.start_soon(send, entry)
    assert wrong == []
