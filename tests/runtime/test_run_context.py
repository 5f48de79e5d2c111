"""Everything that happens in a turn knows which turn it is."""

from __future__ import annotations

import pytest

from retinue.core.envelope import Inbound
from retinue.core.events import Accepted, ToolStarted, TurnEvent, TurnFinished, TurnStarted
from retinue.core.keys import RunContext, SessionKey, current_run
from retinue.testing.replies import calls, says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio


async def test_a_turn_is_known_from_its_start_to_its_end(stage: Stage) -> None:
    seen: dict[type[TurnEvent], RunContext | None] = {}

    async def watch(event: TurnEvent) -> None:
        seen[type(event)] = current_run()

    stage.server.push(calls("read", path="none.md"), says("Done."))
    key = SessionKey.parse("agent:main:errands")
    async with stage.open() as runtime:
        outbound = await runtime.say(Inbound("Hello", key), watch)
    assert seen[Accepted] is None
    assert seen[TurnStarted] == seen[ToolStarted] == seen[TurnFinished] == RunContext(key, outbound.run)
    assert current_run() is None
