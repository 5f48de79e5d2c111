"""When an agent goes in circles is set for all agents, and key by key for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.config.sections.tools import LoopDetection
from retinue.core.events import TurnStatus
from retinue.runtime.turns.loop_setup import loop_limits
from retinue.structs.decode import decode
from retinue.testing.replies import calls, says
from tests.runtime.conftest import staged


def test_an_agents_own_keys_win_and_the_others_stay() -> None:
    everybody = decode(LoopDetection, {"warningThreshold": 5, "detectors": {"pingPong": False}})
    own = decode(
        LoopDetection,
        {"criticalThreshold": 7, "globalCircuitBreakerThreshold": 9, "detectors": {"genericRepeat": False}},
    )
    limits = loop_limits(everybody, own)
    assert (limits.warn, limits.stop, limits.idle) == (5, 7, 9)
    assert (limits.turns, limits.repeats, limits.polling) == (False, False, True)
    assert loop_limits(everybody, None).stop == 20


@pytest.mark.anyio
@pytest.mark.parametrize(("own", "status"), [({}, TurnStatus.FAILED), ({"enabled": False}, TurnStatus.OK)])
async def test_a_turn_is_stopped_as_configured_for_its_agent(
    tmp_path: Path, own: dict[str, bool], status: TurnStatus
) -> None:
    config = {
        "tools": {"loopDetection": {"criticalThreshold": 3}},
        "agents": {"list": [{"id": "main", "tools": {"loopDetection": own}}]},
    }
    replies = [calls("read", path="nothing") for _ in range(3)]
    async with staged(tmp_path, *replies, says("There is nothing."), config=config) as stage:
        (reply,) = await stage.ask("look for it")
    assert reply.status is status
