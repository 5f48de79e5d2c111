"""Stopping a turn: from the same process and from another one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.core.envelope import Inbound
from retinue.core.events import TextDelta, TurnEvent, TurnStatus
from retinue.core.keys import SessionKey
from retinue.testing.replies import Fault, Reply, says
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")


async def stop_from(stage: Stage, *, same_process: bool) -> None:
    """Start a turn that would never end, and stop it with `/stop` once it speaks."""
    speaking = anyio.Event()

    async def listen(event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            speaking.set()

    async with stage.open() as runtime, stage.open() as other:
        async with anyio.create_task_group() as tasks:

            async def talk() -> None:
                reply = await runtime.say(Inbound("go on for ever", KEY), listen)
                assert reply.status is TurnStatus.ABORTED

            tasks.start_soon(talk)
            with anyio.fail_after(60):
                await speaking.wait()
                told = await (runtime if same_process else other).say(Inbound("/stop", KEY))
        assert told.text == "Stopped."
        after = await runtime.say(Inbound("and now?", KEY))
        assert after.text == "Here I am."


@pytest.mark.parametrize("same_process", [True, False])
async def test_stop_ends_the_turn_whoever_runs_it(tmp_path: Path, same_process: bool) -> None:
    endless = Reply(text="Once upon a time ", fault=Fault.HANG)
    async with staged(tmp_path, endless, says("Here I am.")) as stage:
        await stop_from(stage, same_process=same_process)


async def test_nothing_to_stop_is_said_so(stage: Stage) -> None:
    (reply,) = await stage.ask("/stop")
    assert reply.text == "Nothing is running."
