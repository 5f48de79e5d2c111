"""After a power failure that undid the last changes of the database, no effect is repeated."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.power import STORIES, Aftermath, tell

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CASES = 20


@pytest.mark.parametrize("story", STORIES)
async def test_effects_are_not_repeated_if_the_database_loses_its_last_changes(tmp_path: Path, story: str) -> None:
    chance = random.Random(f"power {story}")
    cuts = len(range(list(STORIES).index(story), CASES, len(STORIES)))

    async def visit(aftermath: Aftermath) -> None:
        for length in (aftermath.frames[0], *chance.sample(aftermath.frames[1:], cuts - 1)):
            assert await aftermath.cut(length) == [], f"the log was cut after {length} bytes"

    await tell(story, tmp_path, visit)
