"""Gateways that are killed while they receive, answer and send."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from retinue.storage.home_paths import HomePaths
from tests.channels.services import EchoModel, World, open_world
from tests.channels.test_services import SERVICES, configuration
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

pytestmark = pytest.mark.anyio

STEPS = (
    "retinue.dispatch.inbox:Inbox.accept:before",
    "retinue.dispatch.inbox:Inbox.accept:after",
    "retinue.dispatch.channel_accounts:ChannelAccountStore.advance:before",
    "retinue.dispatch.channel_accounts:ChannelAccountStore.advance:after",
    "retinue.dispatch.outbox:Outbox.put:before",
    "retinue.dispatch.outbox:Outbox.put:after",
    "retinue.dispatch.outbox:Outbox.begin:after",
    "retinue.dispatch.outbox:Outbox.sent:before",
    "retinue.dispatch.outbox:SentLog.add:after",
    "retinue.dispatch.outbox:Outbox.sent:after",
)
"""Where the process is killed: before or after a function of receiving, answering and sending."""

KILL_SECONDS = 20.0
KILLER = """
import importlib, os, signal, sys
from retinue.cli.main import main
step, count = os.environ["KILL_AT"], int(os.environ["KILL_COUNT"])
module, target, when = step.split(":")
owner, name = target.split(".")
cls = getattr(importlib.import_module(module), owner)
original, left = getattr(cls, name), [count]
def act(*args, **kwargs):
    left[0] -= 1
    if left[0] == 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **kwargs)
    if left[0] == 0 and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(cls, name, act)
main()
"""


async def answer_across_kills(world: World, hall: Hall, chance: random.Random, kills: int) -> list[str]:
    """Write messages while gateways are killed at random steps; returns the answers."""
    asked: list[str] = []
    for _ in range(kills):
        step, count = chance.choice(STEPS), chance.randint(1, 3)
        kill = {"KILL_AT": step, "KILL_COUNT": str(count)}
        for _ in range(3):
            asked.append(f"question {len(asked)}")
            await world.say(asked[-1])
        with suppress(AssertionError):  # it can be killed before it listens
            async with gateway_process(hall, program=("-c", KILLER), **kill) as gateway:
                with anyio.move_on_after(KILL_SECONDS):  # some steps are not reached as often
                    await gateway.ended()
    async with gateway_process(hall):
        with suppress(TimeoutError):  # what is missing is shown by the comparison
            await world.fake.until(lambda: len(world.fake.sent) > len(asked), seconds=KILL_SECONDS)
        await world.say("/status")
        await world.fake.until(lambda: any("Session agent" in text for text in world.texts()), seconds=PATIENCE)
    return asked


async def kill_service(
    service: str, place: Path, chance: random.Random, kills: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Kill gateways of a new home; returns the answers that are wanted, and those that were given."""
    async with open_world(service) as world, EchoModel() as model:
        hall = Hall(HomePaths(place / "home"), model, configuration(world))
        hall.write_config()
        async with gateway_process(hall):
            await world.ready()
            await world.say("hello")  # after its answer, the position is stored
            await world.fake.until(lambda: len(world.fake.sent) >= 1, seconds=PATIENCE)
        asked = await answer_across_kills(world, hall, chance, kills)
        answers = [text for text in world.texts() if text.startswith("answer")]
        return [text.replace("question", "answer") for text in asked], answers


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
async def test_kills_at_every_step_lose_and_repeat_nothing(service: str, tmp_path: Path) -> None:
    """Each service is killed seven times, so there are more than twenty kills."""
    asked, answers = await kill_service(service, tmp_path, random.Random(f"kills of {service}"), 7)
    assert len(answers) == len(asked)
    assert len(set(answers)) == len(answers)
    assert answers == asked
