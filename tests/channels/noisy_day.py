"""A day of a chat service that fails often, with a gateway whose clock is set and that is restarted.

The hours pass by setting the clock of the gateway; messages, faults and connections are real.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from retinue.core.clock import SystemClock
from retinue.gateway.server import run_gateway
from retinue.gateway.shutdown import ShutdownRequest
from retinue.runtime.home import load_home
from retinue.storage.home_paths import HomePaths
from tests.channels.services import FRIEND, OWNER, EchoModel, World, open_world
from tests.gateway.conftest import PATIENCE, Hall, wait_until_listening

HOURS = 24
NOISE = 0.15
MAX_SKEW_SECONDS = 2 * 3600.0


class MovedClock(SystemClock):
    """The machine's clock, moved."""

    def __init__(self) -> None:
        self._set = self._passed = timedelta()

    def now(self) -> datetime:
        return super().now() + self._set + self._passed

    def monotonic(self) -> float:
        return super().monotonic() + self._passed.total_seconds()

    def pass_time(self, by: timedelta) -> None:
        self._passed += by

    def set(self, to: timedelta) -> None:
        """Set the clock to that far from the right time."""
        self._set = to


@dataclass
class Day:
    """What was asked in each chat, and what came back."""

    asked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[str]] = field(default_factory=dict)
    faults: int = 0

    def violations(self) -> list[str]:
        """Questions that were lost, repeated or answered out of order."""
        wanted = {who: [text.replace("question", "answer") for text in asked] for who, asked in self.asked.items()}
        return [
            f"{who}: {self.answered.get(who)} instead of {answers}"
            for who, answers in wanted.items()
            if self.answered.get(who) != answers
        ]


async def live_through(service: str, path: Path, chance: random.Random, messages: int) -> Day:
    """Let people write so many messages over a day."""
    day, clock = Day(), MovedClock()
    async with open_world(service) as world, EchoModel() as model:
        config = {
            "commands": {"ownerAllowFrom": [world.owner]},
            "channels": {world.name: {**world.config, "allowFrom": [world.address(FRIEND)]}},
        }
        hall = Hall(HomePaths(path / "home"), model, config)
        hall.write_config()
        async with _gateway(hall, clock):
            await world.ready()
            for who in (OWNER, FRIEND):  # a bot of Discord cannot find a chat in which it never got a message
                await _ask(world, day, who)
            await _wait(world, day)
        hours = [chance.randrange(HOURS) for _ in range(messages)]
        for part in range(4):
            begin, end = part * HOURS // 4, (part + 1) * HOURS // 4
            await _write(world, day, chance, hours.count(begin), chance.random() < 0.5)  # while no gateway runs
            async with _gateway(hall, clock):
                for hour in range(begin + 1, end):
                    clock.pass_time(timedelta(hours=1))
                    clock.set(timedelta(seconds=chance.uniform(-MAX_SKEW_SECONDS, MAX_SKEW_SECONDS)))
                    world.fake.be_noisy(chance, NOISE)
                    await _write(world, day, chance, hours.count(hour), chance.random() < 0.3)
                    if chance.random() < 0.7:
                        await _wait(world, day)
                if part == 3:
                    world.fake.be_quiet()
                    await _wait(world, day)
                    await world.say("/status")
                    await world.fake.until(
                        lambda: any("Session agent" in each for each in world.texts()), seconds=PATIENCE
                    )
            world.fake.be_quiet()
        day.faults = world.fake.failed
        for who in (OWNER, FRIEND):
            day.answered[who] = [text for text in world.texts(who) if text.startswith("answer")]
    return day


@asynccontextmanager
async def _gateway(hall: Hall, clock: MovedClock) -> AsyncIterator[None]:
    ending = ShutdownRequest()
    async with anyio.create_task_group() as tasks:
        home = load_home(hall.home, environment=hall.environment, clock=clock)
        tasks.start_soon(run_gateway, home, 0, ending)
        await wait_until_listening(hall.home)
        try:
            yield
        finally:
            ending.request("the part of the day is over")


async def _write(world: World, day: Day, chance: random.Random, count: int, cuts: bool) -> None:
    for _ in range(count):
        message = await _ask(world, day, chance.choice((OWNER, FRIEND)))
        if chance.random() < 0.3:
            await world.repeat(message)
    if cuts:
        await world.cut()
        if world.name == "discord" and chance.random() < 0.5:
            world.fake.forget_sessions()


async def _ask(world: World, day: Day, who: str) -> dict[str, Any]:
    day.asked[who].append(f"question {sum(map(len, day.asked.values()))}")
    return await world.say(day.asked[who][-1], who)


async def _wait(world: World, day: Day) -> None:
    """Wait until all questions are answered; what is missing is shown by the comparison."""
    wanted = {text.replace("question", "answer") for asked in day.asked.values() for text in asked}
    with suppress(TimeoutError):
        await world.fake.until(lambda: wanted <= set(world.texts()), seconds=PATIENCE)
