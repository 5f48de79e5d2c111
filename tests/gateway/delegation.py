"""Gateways whose agents delegate: one that is killed while sub-agents work, and one with more of them than it runs."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio

from retinue.core.clock import SystemClock
from retinue.core.envelope import Inbound
from retinue.core.errors import RetinueError
from retinue.core.events import TurnEvent
from retinue.core.keys import SessionKey
from retinue.dispatch.subagents import EVERY, Child, ChildState, SubagentStore
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, calls_together, says
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

TASK, NEWS = "[Sub-agent task]", "[Sub-agent "
LONGEST_WAIT = 3.0
"""How long a gateway lives at most where no sub-agent comes to work, because its parent was given up."""


class Delegating(ModelServer):
    """Hands every request on to sub-agents, each of which takes a moment; `numbers` decides how long."""

    def __init__(self, numbers: random.Random) -> None:
        super().__init__()
        self._numbers = numbers
        self.at_work = asyncio.Event()

    async def reply_to(self, request: Received) -> Reply:
        content = request.json["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        if text.startswith(TASK):
            self.at_work.set()
            await asyncio.sleep(self._numbers.uniform(0.0, 0.4))
            return says("found it")
        if text.startswith(NEWS):
            return says("noted")
        if text.startswith("{"):
            return says("handed on")
        return calls_together(*[calls("tool_call", name="sessions_spawn", arguments={"task": "Find it."})] * 2)


@dataclass(frozen=True, slots=True)
class Found:
    """What the registry and the parents' transcripts say in the end."""

    children: tuple[Child, ...]
    told: Counter[str]

    @property
    def lost(self) -> list[Child]:
        """Children without an end, or whose parent was not told exactly once."""
        return [child for child in self.children if child.state is ChildState.RUNNING or self.told[str(child.run)] != 1]


async def kill_while_delegating(
    path: Path, kills: int, seed: int, progress: Callable[[int], None] = lambda number: None
) -> Found:
    """Let a gateway die so many times at random moments, mostly while a sub-agent works, then let it finish."""
    numbers = random.Random(seed)
    async with Delegating(numbers) as model:
        hall = Hall(HomePaths(path / "home"), model)
        hall.write_config()
        for number in range(kills):
            model.at_work.clear()
            async with gateway_process(hall) as process, anyio.create_task_group() as tasks:
                tasks.start_soon(_ask, hall, SessionKey.parse(f"agent:main:parent-{number % 5}"))
                if numbers.random() < 0.7:
                    with anyio.move_on_after(LONGEST_WAIT):
                        await model.at_work.wait()
                await anyio.sleep(numbers.uniform(0.02, 0.8))
                await process.kill()
                tasks.cancel_scope.cancel()
            progress(number + 1)
        async with gateway_process(hall):
            await _until_told(hall)
        return Found(_children(hall), _announcements(hall))


async def _until_told(hall: Hall) -> None:
    with anyio.fail_after(PATIENCE * 2):
        while any(child.told_at is None for child in _children(hall)) or _busy(hall):
            await anyio.sleep(0.05)


async def _show_nothing(event: TurnEvent) -> None:
    """Nobody watches."""


async def _ask(hall: Hall, session: SessionKey, text: str = "Find something.") -> None:
    try:
        async with hall.client() as client:
            await client.say(Inbound(text, session), _show_nothing, None)
    except* RetinueError:
        pass  # the gateway was killed before the client had connected


def _children(hall: Hall) -> tuple[Child, ...]:
    with closing(SqliteDatabase(hall.home.path / DATABASE_NAME)) as database:
        return SubagentStore(database, SystemClock()).all(EVERY)


def _busy(hall: Hall) -> bool:
    with closing(SqliteDatabase(hall.home.path / DATABASE_NAME)) as database:
        (row,) = database.read("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'claimed')")
        return bool(row[0])


def _announcements(hall: Hall) -> Counter[str]:
    """How often each child's result stands in a transcript as something that was said to its parent."""
    told: Counter[str] = Counter()
    for file in hall.home.sessions(SessionKey.parse("main").agent).glob("*.jsonl"):
        for line in file.read_text().splitlines():
            message = json.loads(line).get("message") or {}
            if message.get("role") != "user":
                continue
            content = message.get("content")
            parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
            for text in parts:
                if text.startswith(NEWS) and not text.startswith(TASK):
                    told[text.removeprefix(NEWS).split()[0]] += 1
    return told


class Crowding(ModelServer):
    """Hands every request on to many sub-agents at once, and counts those that it works for at one time.

    No sub-agent comes to its end before all of them were asked for.
    """

    def __init__(self, wanted: dict[str, int], seconds: float) -> None:
        super().__init__()
        self._wanted = wanted
        self._seconds = seconds
        self._handed_on = 0
        self._all_asked = asyncio.Event()
        self._at_once = 0
        self.most_at_once = 0
        self.begun: list[str] = []

    async def reply_to(self, request: Received) -> Reply:
        content = request.json["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        if text.startswith(TASK):
            self.begun.append(text.split()[-1])
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            await self._all_asked.wait()
            await asyncio.sleep(self._seconds)
            self._at_once -= 1
            return says("found it " * 200)
        if text.startswith("For "):
            name = text.split()[-1]
            spawn = calls("tool_call", name="sessions_spawn", arguments={"task": f"Work for {name}"})
            return calls_together(*[spawn] * self._wanted[name])
        if text.startswith("{"):
            self._handed_on += 1
            if self._handed_on == len(self._wanted):
                self._all_asked.set()
        return says("noted")


@dataclass(frozen=True, slots=True)
class CrowdFound:
    """What came of many sub-agents, who began when, and how much memory their gateway took, in megabytes."""

    found: Found
    most_at_once: int
    begun: list[str]
    before: float
    most: float


async def crowd_a_gateway(path: Path, wanted: dict[str, int], seconds: float = 0.2) -> CrowdFound:
    """Let each parent start so many sub-agents in one turn, and wait until all are told of."""
    async with Crowding(wanted, seconds) as model:
        hall = Hall(HomePaths(path / "home"), model)
        hall.write_config(
            agents={
                "defaults": {"model": "test/test-model", "subagents": {"maxChildrenPerAgent": max(wanted.values())}}
            }
        )
        async with gateway_process(hall) as process:
            async with hall.client() as client:
                await client.say(Inbound("Hello.", SessionKey.parse("agent:main:warm")), _show_nothing, None)
            before = _memory(process.process.pid, "VmRSS")
            async with anyio.create_task_group() as tasks:
                for name in wanted:
                    tasks.start_soon(_ask, hall, SessionKey.parse(f"agent:main:parent-{name}"), f"For {name}")
            await _until_told(hall)
            most = _memory(process.process.pid, "VmHWM")
        return CrowdFound(Found(_children(hall), _announcements(hall)), model.most_at_once, model.begun, before, most)


def _memory(pid: int, name: str) -> float:
    """What a process uses, or used at its peak, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
