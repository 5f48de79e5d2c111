"""A gateway that is killed again and again at a fixed interval, however far its turns are: none is given up."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from retinue.core.events import TurnStatus
from retinue.core.keys import RunId
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from retinue.wire import messages
from tests.gateway.conftest import Hall, gateway_process

SESSIONS = 4
PATIENCE = 600.0


class Slow(ModelServer):
    """A model that reads a file before it answers, and takes up to `longest` seconds for each step."""

    def __init__(self, chance: random.Random, longest: float) -> None:
        super().__init__()
        self._chance = chance
        self.longest = longest

    async def reply_to(self, request: Received) -> Reply:
        await anyio.sleep(self._chance.uniform(0.0, self.longest))
        if request.json["messages"][-1]["role"] == "tool":
            return says("It is done.")
        return calls("read", path="USER.md")


@dataclass
class Survivors:
    """The runs of all acknowledged messages, and those that were not answered in the end."""

    accepted: list[RunId] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)


async def kill_regularly(place: Path, kills: int, spacing: float, chance: random.Random) -> Survivors:
    """Kill a gateway that many times, each time that many seconds after its start; then let it finish.

    One model call in a while takes longer than a gateway lives, so that a turn makes no progress for many of them.
    """
    found = Survivors()
    async with Slow(chance, longest=spacing * 2) as model:
        hall = Hall(HomePaths(place / "home"), model)
        hall.write_config()
        for number in range(kills):
            began = anyio.current_time()
            async with gateway_process(hall) as process:
                with anyio.move_on_after(max(0.5, spacing - (anyio.current_time() - began))) as life:
                    async with hall.client() as client:
                        key = f"message-{number}"
                        session = f"kills-{number % SESSIONS}"
                        said = messages.Say(message=f"Say {key}.", session_key=session, idempotency_key=key)
                        accepted = await client.call(messages.AGENT, said)
                        found.accepted.append(RunId(accepted.run_id))
                        await anyio.sleep_until(life.deadline)
                await process.kill()
        model.longest = 0.01
        async with gateway_process(hall), hall.client() as client:
            for run in found.accepted:
                with anyio.fail_after(PATIENCE):
                    outbound = await client.wait(run)
                if outbound.status is not TurnStatus.OK:
                    found.given_up.append(f"{run}: {outbound.error}")
    return found
