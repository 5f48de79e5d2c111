"""Clients that are killed: at random moments while they talk without a break, and at each write of one turn."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from itertools import count

import anyio

from tests.faults.scene import Client, Scene

CLIENTS = 4
SESSIONS = ("red", "blue")
MOST_MESSAGES = 50


async def storm(scene: Scene, kills: int, chance: random.Random) -> None:
    """Kill clients until that many were killed; whoever dies is followed by another one."""
    turns = iter(range(kills))
    async with anyio.create_task_group() as tasks:
        for number in range(CLIENTS):
            tasks.start_soon(_keep_dying, scene, SESSIONS[number % len(SESSIONS)], turns, chance)


async def die_at_every_write(first: Scene, manner: str, *, window: int = 100_000) -> int:
    """Let a turn on a copy of a home die at its first write, then at its second, until it lives; check every wreck.

    Returns how often it died.
    """
    for write in count(1):
        place = first.path.with_name(f"{first.path.name}-{manner}-{write}")
        shutil.copytree(first.path, place)
        scene = Scene(place, first.server, window=window)
        with scene.ending_clients():
            spoken = await scene.say("main", "main-dying", "--die-at", str(write), "--manner", manner)
            if spoken.process.exitcode == 0:
                return write - 1
            assert spoken.process.exitcode == -signal.SIGKILL, spoken.complaint
            await scene.sweep("main")
            evidence = scene.evidence()
            assert evidence.violations == [], f"died at write {write}"
            done = {task for _, task in evidence.effects} | ({"main-dying"} if evidence.interrupted else set())
            assert done >= set(evidence.accepted.values()), f"died at write {write}"
        shutil.rmtree(place)
    raise AssertionError("unreachable")


async def _keep_dying(scene: Scene, session: str, turns: Iterator[int], chance: random.Random) -> None:
    for turn in turns:
        started = scene.start(session, f"{session}-{turn}", "--messages", str(MOST_MESSAGES))
        await _wait_a_while(started, chance)
        await started.kill()


async def _wait_a_while(started: Client, chance: random.Random) -> None:
    """Let a client come as far as its start, an acknowledgement or an answer, and a little further."""
    word = chance.choice(["", "", "accepted", "accepted", "accepted", "answered"])
    if word:
        await started.wait_for(word, chance.randint(1, 3))
    await anyio.sleep(chance.uniform(0.0, 0.03 if word else 0.3))
