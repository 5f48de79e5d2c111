"""Many connections that follow one session and all send a message to it at the same time.

Each event of each turn is sent to every connection, so the gateway sends more than half a million events while it has
messages to accept. A client gives up a request that is not acknowledged within 30 seconds.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from tests.faults.callers import CONNECTING, SESSION, Echo
from tests.gateway.conftest import Hall, gateway_process
from websockets.asyncio.client import ClientConnection, connect

from bench.measure import Sheet
from retinue.client.client import PATIENCE_SECONDS
from retinue.storage.home_paths import HomePaths

SOCKETS = 500
WAIT_MS = 600_000


@dataclass
class Crowd:
    """What the connections have seen."""

    size: int
    connected: int = 0
    all_connected: anyio.Event = field(default_factory=anyio.Event)
    acknowledged: list[float] = field(default_factory=list)
    """How long each message waited for its acknowledgement, in seconds."""
    wrong: list[str] = field(default_factory=list)
    events: int = 0

    async def wait_for_others(self) -> None:
        self.connected += 1
        if self.connected == self.size:
            self.all_connected.set()
        await self.all_connected.wait()


def run_sockets(sheet: Sheet, cases: int = SOCKETS, seed: int = 0) -> None:
    """Let that many connections send a message each; raise `AssertionError` if one is not answered as it should be."""
    with tempfile.TemporaryDirectory() as place:
        crowd = anyio.run(_send_all, Path(place), cases, random.Random(seed))
    slowest = max(crowd.acknowledged, default=0.0)
    if crowd.wrong or slowest > PATIENCE_SECONDS:
        raise AssertionError("\n".join([f"the slowest acknowledgement took {slowest:.1f} s", *crowd.wrong[:20]]))
    note = f"each received its own answer, {crowd.events:,} events"
    sheet.row(f"slowest acknowledgement of {cases} subscribed sockets", slowest, "s", note, goal=PATIENCE_SECONDS)


async def _send_all(place: Path, cases: int, chance: random.Random) -> Crowd:
    crowd = Crowd(cases)
    limiter = anyio.CapacityLimiter(CONNECTING)
    async with Echo(chance) as model:
        hall = Hall(HomePaths(place / "home"), model, {"messages": {}})
        hall.write_config()
        async with gateway_process(hall), anyio.create_task_group() as tasks:
            for number in range(cases):
                tasks.start_soon(_send_one, hall, crowd, limiter, number)
    return crowd


async def _send_one(hall: Hall, crowd: Crowd, limiter: anyio.CapacityLimiter, number: int) -> None:
    address = hall.url.replace("http", "ws", 1) + "/ws"
    async with limiter:  # The gateway lets only some connections wait for their authentication.
        link = await connect(address, proxy=None, compression=None, ping_interval=None, max_size=None)
        await _call(crowd, link, "connect", client={"name": "bench"}, auth={"token": hall.local_token})
    async with link:
        await _call(crowd, link, "sessions.subscribe", sessionKey=SESSION)
        await crowd.wait_for_others()
        word = f"word{number}"
        began = time.monotonic()
        accepted = await _call(
            crowd, link, "chat.send", message=f"Please say <{word}>.", sessionKey=SESSION, idempotencyKey=word
        )
        crowd.acknowledged.append(time.monotonic() - began)
        waited = await _call(crowd, link, "agent.wait", runId=accepted["runId"], timeoutMs=WAIT_MS)
        answer = (waited["outbound"] or {}).get("text")
        if answer != f"You said {word}.":
            crowd.wrong.append(f"{word} received {answer!r}")


async def _call(crowd: Crowd, link: ClientConnection, method: str, **params: object) -> Any:
    """Send a request and return its payload; events that come in between are only counted."""
    await link.send(json.dumps({"type": "req", "id": method, "method": method, "params": params}))
    while (frame := str(await link.recv())).startswith('{"type":"event"'):
        crowd.events += 1
    answer = json.loads(frame)
    if not answer["ok"]:
        raise AssertionError(f"{method} was refused: {answer['error']}")
    return answer["payload"]


if __name__ == "__main__":
    run_sockets(Sheet("faults_sockets"))
