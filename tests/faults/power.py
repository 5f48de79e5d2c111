"""A power failure that undoes the last changes of the database: what was done before must not be done again.

With `durability: process`, SQLite passes its log to the system without waiting for the disk. Here a gateway does
something that has an effect, the home is copied, and the log of the copy is cut at a frame. A gateway on the copy must
not repeat the effect, even if the sender sends its request again.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.storage.database import DATABASE_NAME, query_read_only
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from retinue.wire import automation, messages
from tests.channels.receiver import Receiver, open_receiver
from tests.gateway.conftest import Hall
from tests.runtime.delegation import last_words

WORD = re.compile(r"<(\w+)>")
HOOK_TOKEN, BRIDGE_TOKEN = "hook-secret-0123456789", "bridge-token-0123456789"
KEY = SessionKey.main(DEFAULT_AGENT)
PATIENCE = 120.0
QUIET_CHECKS = 5

_HEADER, _FRAME = 32, 24
_OPEN_WORK = """
SELECT (SELECT count(*) FROM inbox WHERE state IN ('waiting', 'claimed'))
    + (SELECT count(*) FROM inbox WHERE account IS NOT NULL AND delivered_at IS NULL)
    + (SELECT count(*) FROM outbox WHERE state = 'waiting')
    + (SELECT count(*) FROM job_runs WHERE outcome = 'running')
    + (SELECT count(*) FROM jobs WHERE enabled AND next_at IS NOT NULL)
    + (SELECT count(*) FROM children WHERE ended_at IS NULL OR told_at IS NULL)
    + (SELECT count(*) FROM hook_runs)
"""


class Worker(ModelServer):
    """A model that does what a message asks for, and counts: its tool leaves a line in a file outside of the home."""

    def __init__(self, ledger: Path) -> None:
        super().__init__()
        self._ledger = ledger
        self.asked: Counter[str] = Counter()
        """How often each message, task or announcement was new to the model."""
        self.approvals = 0

    async def reply_to(self, request: Received) -> Reply:
        if request.json["messages"][-1]["role"] == "tool":
            return says("It is done.")
        text = last_words(request)
        word = WORD.findall(text)[-1]
        kind = "task" if "[Sub-agent task]" in text else "news" if "[Sub-agent " in text else "message"
        self.asked[f"{kind} {word}"] += 1
        if kind == "news":
            return says("I see.")
        if kind == "message" and "delegate" in text:
            return calls("tool_call", name="sessions_spawn", arguments={"task": f"Work on <{word}>."})
        if "effect" in text:
            return calls("exec", command=f"echo {word} >> {self._ledger}")
        return says(f"I have worked on <{word}>.")

    def effects(self, receiver: Receiver) -> Counter[str]:
        """Everything that happened so far."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        sent = (f"sent {delivery['text']}" for delivery in receiver.deliveries)
        return self.asked + Counter(f"effect {line}" for line in lines) + Counter(sent) + Counter(asks=self.approvals)

    async def allow(self, request: ApprovalRequest) -> ApprovalDecision:
        self.approvals += 1
        return ApprovalDecision(Verdict.ALLOW_ONCE, "go ahead", "ada")


@dataclass
class World:
    """A gateway, its model, and a chat service."""

    hall: Hall
    model: Worker
    receiver: Receiver

    async def settle(self) -> None:
        """Wait until nothing is left to do."""
        quiet = 0
        with anyio.fail_after(PATIENCE):
            while quiet < QUIET_CHECKS:
                rows = query_read_only(self.hall.home.path / DATABASE_NAME, _OPEN_WORK)
                quiet = quiet + 1 if rows is not None and rows[0][0] == 0 else 0
                await anyio.sleep(0.02)


Act = Callable[[World], Awaitable[None]]


async def _say(world: World) -> None:
    async with world.hall.client() as client:
        said = messages.Say(message="Take effect for <inbox>.", idempotency_key="order-1")
        accepted = await client.call(messages.AGENT, said)
        outbound = await client.wait(RunId(accepted.run_id))
        assert outbound.text == "It is done.", outbound


async def _write_in_chat(world: World) -> None:
    body = {"text": "Work on <outbox>.", "peer": {"id": "ada"}, "sender": {"id": "ada"}, "messageId": "m1"}
    async with world.hall.http(BRIDGE_TOKEN) as http:
        answer = await http.post("/channels/http/chat", json=body)
        assert answer.status_code == 200, answer.text
    await world.receiver.until(1)


async def _add_job(world: World) -> None:
    fields = {"name": "once", "message": "Work on <job>.", "at": "1s", "deliver": "none"}
    async with world.hall.client() as client:
        await client.call(automation.CRON_ADD, automation.AddJob(fields=fields))


async def _wait_for_job(world: World) -> None:
    """The gateway runs the job when it is due."""


async def _call_webhook(world: World) -> None:
    async with world.hall.http(HOOK_TOKEN) as http:
        answer = await http.post("/hooks/agent", json={"message": "Work on <hook>.", "idempotencyKey": "order-2"})
        assert answer.status_code == 200, answer.text


async def _approve(world: World) -> None:
    async with world.hall.client(asks=True) as client:
        outbound = await client.say(Inbound("Take effect for <approval>.", KEY), _ignore, world.model.allow)
        assert outbound.text == "It is done.", outbound


async def _attend(world: World) -> None:
    async with world.hall.client(asks=True) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.attend, KEY, _ignore, world.model.allow)
        await world.settle()
        tasks.cancel_scope.cancel()


async def _delegate(world: World) -> None:
    async with world.hall.client() as client:
        said = messages.Say(message="Please delegate <child>.", idempotency_key="order-3")
        accepted = await client.call(messages.AGENT, said)
        await client.wait(RunId(accepted.run_id))


async def _ignore(event: TurnEvent) -> None:
    """No person looks."""


@dataclass(frozen=True)
class Story:
    """What a gateway does before the power fails, and what others send to the next one."""

    act: Act
    again: Act
    before: Act | None = None
    """What a gateway did that ended normally."""
    asks: str = "off"


STORIES = {
    "inbox": Story(_say, _say),
    "outbox": Story(_write_in_chat, _write_in_chat),
    "job": Story(_wait_for_job, _wait_for_job, before=_add_job),
    "webhook": Story(_call_webhook, _call_webhook),
    "approval": Story(_approve, _attend, asks="always"),
    "sub-agent": Story(_delegate, _delegate),
}


@dataclass
class Aftermath:
    """The home at the moment of the power failure, and what happened until then."""

    story: Story
    world: World
    copy: Path
    frames: Sequence[int]
    """The lengths of the log after each of its frames, and before the first one."""
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    async def cut(self, length: int) -> list[str]:
        """Start a gateway on a copy of the home whose log was cut; return the effects that it repeated."""
        place = self.copy.with_name(f"{self.copy.name}-{next(self.numbers)}")
        _copy(self.copy, place)
        (place / f"{DATABASE_NAME}-shm").unlink(missing_ok=True)
        with (place / f"{DATABASE_NAME}-wal").open("r+b") as log:
            log.truncate(length)
        before = self.world.model.effects(self.world.receiver)
        hall = Hall(HomePaths(place), self.world.model, self.world.hall.config)
        world = World(hall, self.world.model, self.world.receiver)
        async with hall.serving():
            await self.story.again(world)
            await world.settle()
        return sorted((world.model.effects(self.world.receiver) - before).elements())


async def tell(name: str, place: Path, visit: Callable[[Aftermath], Awaitable[None]]) -> None:
    """Let a story happen up to the power failure, and visit its aftermath."""
    story = STORIES[name]
    place.mkdir(parents=True, exist_ok=True)
    async with open_receiver() as receiver, Worker(place / "ledger") as model:
        hall = Hall(HomePaths(place / "home"), model, _configure(receiver, story))
        world = World(hall, model, receiver)
        async with hall.serving():  # The first gateway of a home creates what every home has.
            if story.before is not None:
                await story.before(world)
        async with hall.serving():
            await story.act(world)
            await world.settle()
            _copy(hall.home.path, place / "copy")
        done = model.effects(receiver)
        assert done, f"nothing happened in the story of the {name}"
        assert set(done.values()) == {1}, f"something happened twice before the power failed: {done}"
        await visit(Aftermath(story, world, place / "copy", _frames(place / "copy" / f"{DATABASE_NAME}-wal")))


def _configure(receiver: Receiver, story: Story) -> dict[str, Any]:
    account = {"token": BRIDGE_TOKEN, "webhookUrl": receiver.url}
    return {
        "commands": {"ownerAllowFrom": ["http:ada"]},
        "channels": {"http": {"dmPolicy": "open", "accounts": {"chat": account}}},
        "hooks": {"enabled": True, "token": HOOK_TOKEN},
        "tools": {"exec": {"security": "full", "ask": story.asks}},
    }


def _copy(source: Path, target: Path) -> None:
    # In another process: if this one closed the files of an open database, it would release SQLite's locks.
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _frames(log: Path) -> list[int]:
    content = log.read_bytes()
    (page,) = struct.unpack(">I", content[8:12])
    return list(range(_HEADER, len(content) + 1, _FRAME + page))
