"""Load on a gateway process that is told to end again and again, and load that lasts: what is lost, what piles up."""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from retinue.core.clock import SystemClock, random_uuid
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import UserMessage
from retinue.sessions.store import SessionStore
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says
from retinue.wire import messages
from tests.gateway.conftest import GatewayProcess, Hall, RawSocket, gateway_process, raw_socket

SPEAKERS, ROOMS = 8, 4
ENDS_A_ROOM = 10
MESSAGES_A_SESSION = 50
"""After so many a session of the long run is begun anew, as people do."""


@dataclass
class Storm:
    """What was said to a gateway that was told to end many times, and what became of it."""

    ends: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    accepted: dict[str, str] = field(default_factory=dict)
    """The run of every text that was acknowledged."""
    rooms: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The texts of every session, in the order in which they were acknowledged."""
    repeated: int = 0
    """Texts that were sent again because their acknowledgement never came."""
    wrong: list[str] = field(default_factory=list)
    """Texts that were lost, said twice or out of order, or have no good answer."""


@dataclass
class _Speaker:
    """Says one text after the other, each until it is acknowledged, whichever gateway that takes."""

    number: int
    storm: Storm
    said: int = 0
    unsure: tuple[str, str] | None = None
    """The text whose acknowledgement never came, and the session it is for."""

    async def speak(self, hall: Hall) -> None:
        """Talk to one gateway until it goes away."""
        try:
            async with raw_socket(hall) as raw:
                while await self._say(raw):
                    self.said += 1
        except (ConnectionClosed, InvalidHandshake, OSError):
            return

    async def _say(self, raw: RawSocket) -> bool:
        room = f"storm-{self.storm.ends // ENDS_A_ROOM}-{self.number % ROOMS}"
        self.storm.repeated += self.unsure is not None
        text, room = self.unsure = self.unsure or (f"{self.number:02}-{self.said:05}", room)
        answer = await raw.call("agent", message=text, sessionKey=room, idempotencyKey=text)
        self.unsure = None
        if answer["ok"]:
            self.storm.accepted[text] = answer["payload"]["runId"]
            self.storm.rooms[room].append(text)
        return bool(answer["ok"])


async def end_under_load(place: Path, times: int, seed: int, tell: Callable[[str], None] = print) -> Storm:
    """Send SIGTERM so many times to a gateway that is being talked to; then look at what it kept."""
    storm, dice = Storm(), random.Random(seed)
    speakers = [_Speaker(number, storm) for number in range(SPEAKERS)]
    async with ModelServer(then=says("done")) as model:
        hall = Hall(HomePaths(place / "home"), model)
        hall.write_config()
        for _ in range(times):
            async with gateway_process(hall) as process, anyio.create_task_group() as tasks:
                for speaker in speakers:
                    tasks.start_soon(speaker.speak, hall)
                await anyio.sleep(dice.uniform(0.05, 0.6))
                storm.codes[await process.terminate()] += 1
                tasks.cancel_scope.cancel()
            storm.ends += 1
            if storm.ends % 20 == 0:
                tell(f"  {storm.ends} ends, {len(storm.accepted):,} messages accepted")
        async with gateway_process(hall):
            storm.wrong = await _find_wrong(hall, storm)
    return storm


async def _find_wrong(hall: Hall, storm: Storm) -> list[str]:
    wrong = []
    async with hall.client() as client:
        for text, run in storm.accepted.items():
            if (await client.wait(RunId(run))).status is not TurnStatus.OK:
                wrong.append(f"{text} has no good answer")
    store = SessionStore(hall.home.sessions(DEFAULT_AGENT), SystemClock())
    for room, texts in storm.rooms.items():
        messages = store.open(SessionKey.parse(f"agent:{DEFAULT_AGENT}:{room}")).messages
        heard = [message.text for message in messages if isinstance(message, UserMessage)]
        for number in range(SPEAKERS):
            own = f"{number:02}-"
            kept = [text for text in heard if text.startswith(own) and text in storm.accepted]
            said = [text for text in texts if text.startswith(own)]
            if kept != said:
                wrong.append(f"{len(said)} texts of speaker {number} were kept in {room} as {len(kept)}")
    return wrong


@dataclass(frozen=True, slots=True)
class Level:
    """What a process holds at one moment."""

    after: float
    turns: int
    megabytes: float
    descriptors: int


def measure(process: GatewayProcess, began: float, turns: int) -> Level:
    folder = Path(f"/proc/{process.process.pid}")
    pages = int((folder / "statm").read_text().split()[1])
    megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
    return Level(time.monotonic() - began, turns, megabytes, len(list((folder / "fd").iterdir())))


async def soak(place: Path, seconds: float, every: float, tell: Callable[[str], None] = print) -> list[Level]:
    """Talk to a gateway for a long time, and look now and then at what it holds."""
    levels: list[Level] = []
    turns = [0]

    async def talk(hall: Hall, number: int) -> None:
        async with hall.client() as client:
            while True:
                for _ in range(MESSAGES_A_SESSION):
                    say = messages.Say(message="hi", session_key=f"soak-{number}", idempotency_key=random_uuid())
                    await client.wait(RunId((await client.call(messages.AGENT, say)).run_id))
                    turns[0] += 1
                say = messages.Say(message="/new", session_key=f"soak-{number}", idempotency_key=random_uuid())
                await client.wait(RunId((await client.call(messages.AGENT, say)).run_id))

    async with ModelServer(then=says("Hello.")) as model:
        hall = Hall(HomePaths(place / "home"), model)
        hall.write_config()
        async with gateway_process(hall) as process, anyio.create_task_group() as tasks:
            for number in range(SPEAKERS):
                tasks.start_soon(talk, hall, number)
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                await anyio.sleep(every)
                levels.append(measure(process, began, turns[0]))
                level = levels[-1]
                tell(
                    f"  {level.after:5.0f} s {level.turns:7,} turns {level.megabytes:6.1f} MB {level.descriptors} files"
                )
            tasks.cancel_scope.cancel()
    return levels
