"""A gateway that is killed while sub-agents work, and what is left to find afterwards."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio

from retinue.core.approval import nobody_to_ask
from retinue.core.clock import SystemClock
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import SessionKey
from retinue.dispatch.childbook import ChildBook
from retinue.dispatch.subagents import Child, ChildState
from retinue.storage.database import DATABASE_NAME, Database
from retinue.storage.home import Home
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

TASK, NEWS = "[Sub-agent task]", "[Sub-agent "


class Delegating(ModelServer):
    """Hands every request on to a sub-agent, which takes a moment; `numbers` decides how long."""

    def __init__(self, numbers: random.Random) -> None:
        super().__init__()
        self._numbers = numbers

    async def reply_to(self, request: Received) -> Reply:
        content = request.json["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        if text.startswith(TASK):
            await asyncio.sleep(self._numbers.uniform(0.0, 0.3))
            return says("found it")
        if text.startswith(NEWS):
            return says("noted")
        if text.startswith("{"):
            return says("handed on")
        return calls("tool_call", name="sessions_spawn", arguments={"task": "Find it."})


@dataclass(frozen=True, slots=True)
class Found:
    """What the registry and the parents' transcripts say in the end."""

    children: tuple[Child, ...]
    told: Counter[str]

    @property
    def lost(self) -> list[Child]:
        """Children without an end, or whose parent was not told exactly once."""
        return [child for child in self.children if child.state is ChildState.RUNNING or self.told[str(child.run)] != 1]


async def kill_while_delegating(path: Path, kills: int, seed: int) -> Found:
    """Let a gateway die so many times at random moments while it delegates, then let it finish."""
    numbers = random.Random(seed)
    async with Delegating(numbers) as model:
        hall = Hall(Home(path / "home"), model)
        hall.write_config()
        for number in range(kills):
            async with gateway_process(hall) as process, anyio.create_task_group() as tasks:
                tasks.start_soon(_ask, hall, SessionKey.parse(f"agent:main:parent-{number % 5}"))
                await anyio.sleep(numbers.uniform(0.05, 0.8))
                await process.kill()
                tasks.cancel_scope.cancel()
        async with gateway_process(hall):
            with anyio.fail_after(PATIENCE * 2):
                while any(child.told_at is None for child in _children(hall)) or _busy(hall):
                    await anyio.sleep(0.05)
        return Found(_children(hall), _announcements(hall))


async def _ask(hall: Hall, session: SessionKey) -> None:
    async def show(event: TurnEvent) -> None:
        """Nobody watches."""

    async with hall.client() as client:
        await client.say(Inbound("Find something.", session), show, nobody_to_ask)


def _children(hall: Hall) -> tuple[Child, ...]:
    with closing(Database(hall.home.path / DATABASE_NAME)) as database:
        return ChildBook(database, SystemClock()).all()


def _busy(hall: Hall) -> bool:
    with closing(Database(hall.home.path / DATABASE_NAME)) as database:
        (row,) = database.read("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'claimed')")
        return bool(row[0])


def _announcements(hall: Hall) -> Counter[str]:
    """How often each child's result stands in a transcript as something that was said to its parent."""
    import json

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
