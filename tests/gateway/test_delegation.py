"""Sub-agents of a gateway that dies: every result reaches its parent once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.delegation import kill_while_delegating

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_every_result_is_told_once_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    found = await kill_while_delegating(tmp_path, kills=6, seed=5)
    assert found.children
    assert found.lost == []
    assert set(found.told) <= {str(child.run) for child in found.children}
