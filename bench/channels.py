"""Chat services: gateways that are killed and noisy days, and what an idle channel costs.

These are the long versions of `tests/channels/test_kills.py` and `test_a_noisy_day_loses_and_repeats_nothing`.
"""

from __future__ import annotations

import logging
import random
import tempfile
from pathlib import Path

import anyio
from tests.channels.noisy_day import live_through
from tests.channels.services import EchoModel, open_world
from tests.channels.test_kills import kill_service
from tests.channels.test_services import SERVICES
from tests.gateway.conftest import Hall, gateway_process

from bench.gateway import memory_of
from bench.measure import Sheet, cpu_seconds
from retinue.storage.home_paths import HomePaths

KILLS, DAYS, MESSAGES = 200, 10, 100
SETTLE_SECONDS, IDLE_SECONDS, LONG_IDLE_SECONDS = 20.0, 40.0, 180.0
MAX_IDLE_MB, MAX_IDLE_PERCENT = 8, 0.1


def run(*, full: bool) -> None:
    sheet = Sheet("channels")
    logging.getLogger("retinue").setLevel(logging.CRITICAL)
    _measure_idle(sheet, LONG_IDLE_SECONDS if full else IDLE_SECONDS)
    if full:
        run_days(sheet)
        run_kills(sheet)
    sheet.save()


def run_kills(sheet: Sheet, kills: int = KILLS, seed: int = 0) -> None:
    """Kill gateways at named steps of receiving, answering and sending, in rounds of ten."""
    for service in SERVICES:
        count = kills // len(SERVICES) + 1
        questions = 0
        for number in range(0, count, 10):
            with tempfile.TemporaryDirectory() as place:
                chance = random.Random(f"{seed} {service} {number}")
                asked, answers = anyio.run(kill_service, service, Path(place), chance, min(10, count - number))
            if answers != asked:
                raise AssertionError(f"{service}, round {number}: {answers} instead of {asked}")
            questions += len(asked)
        note = f"{questions} questions: 0 lost, 0 answered twice, in order"
        sheet.row(f"kill -9 of a gateway, {service}", count, "kills", note)


def run_days(sheet: Sheet, days: int = DAYS, messages: int = MESSAGES, seed: int = 0) -> None:
    """Live through noisy days."""
    for service in SERVICES:
        faults = 0
        for number in range(days):
            with tempfile.TemporaryDirectory() as place:
                chance = random.Random(f"{seed} {service} {number}")
                day = anyio.run(live_through, service, Path(place), chance, messages)
            if found := day.violations():
                raise AssertionError(f"{service}, day {number}: " + "\n".join(found))
            faults += day.faults
        note = f"{days * messages} questions, {faults} failed requests: 0 lost, 0 answered twice, in order"
        sheet.row(f"noisy days, {service}", days, "days", note)


def _measure_idle(sheet: Sheet, seconds: float) -> None:
    """Compare an idle gateway with a channel to one without."""
    percent, size = anyio.run(_idle, "", seconds)
    sheet.row("idle gateway without a channel, CPU", percent, "%", f"{size:.1f} MB")
    for service in SERVICES:
        found, more = anyio.run(_idle, service, seconds)
        sheet.row(f"an idle channel adds, {service}, CPU", found - percent, "%", goal=MAX_IDLE_PERCENT)
        sheet.row(f"an idle channel adds, {service}, memory", more - size, "MB", goal=MAX_IDLE_MB)


async def _idle(service: str, seconds: float) -> tuple[float, float]:
    """The CPU time of an idle gateway in percent, and its memory in megabytes."""
    async with open_world(service or "telegram") as world, EchoModel() as model:
        with tempfile.TemporaryDirectory() as place:
            hall = Hall(
                HomePaths(Path(place) / "home"), model, {"channels": {service: world.config}} if service else {}
            )
            hall.write_config()
            async with gateway_process(hall) as gateway:
                if service:
                    await world.ready()
                await anyio.sleep(SETTLE_SECONDS)
                before = cpu_seconds(gateway.process.pid)
                await anyio.sleep(seconds)
                used = cpu_seconds(gateway.process.pid) - before
                return used / seconds * 100, memory_of(gateway.process.pid)
