"""Turns survive a gateway that is killed in quick succession."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.spaced_kills import kill_regularly

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_no_turn_is_given_up_although_the_gateway_is_killed_again_and_again(tmp_path: Path) -> None:
    found = await kill_regularly(tmp_path, 6, 1.0, random.Random("spaced kills"))
    assert found.accepted
    assert found.given_up == []
