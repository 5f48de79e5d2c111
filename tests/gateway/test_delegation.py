"""Each result of a sub-agent reaches its parent once, also if the gateway is killed or has too many of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.delegation import crowd_a_gateway, kill_while_delegating

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_every_result_is_told_once_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    found = await kill_while_delegating(tmp_path, kills=6, seed=5)
    assert found.children
    assert found.lost == []
    assert set(found.told) <= {str(child.run) for child in found.children}


async def test_more_sub_agents_than_places_are_all_told_once_within_bounded_memory(tmp_path: Path) -> None:
    crowd = await crowd_a_gateway(tmp_path, {"a": 10, "b": 8}, seconds=0.05)
    assert len(crowd.found.children) == 18
    assert crowd.found.lost == []
    assert crowd.most_at_once == 8
    assert crowd.most - crowd.before < 100
