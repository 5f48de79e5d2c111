"""Heartbeats through the whole runtime: calls made, suppressed and delivered are what the settings say."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.automation.heartbeat import Skip, Wake
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.heartbeats import Heart, open_heart
from retinue.storage.home import Home
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

MAIN = SessionKey.main(DEFAULT_AGENT)
BEATS = SessionKey.parse("agent:main:heartbeat")
CHECKLIST = "# Heartbeat\n\n- [ ] look at the build\n"


class Counting(ModelServer):
    """A model that answers by how often it was asked."""

    answer: Callable[[int], str] = staticmethod(lambda number: "HEARTBEAT_OK")

    async def reply_to(self, request: Received) -> Reply:
        return says(self.answer(len(self.requests)))


@asynccontextmanager
async def beating(
    path: Path, server: ModelServer, checklist: str = CHECKLIST, **heartbeat: Any
) -> AsyncIterator[tuple[Stage, Heart]]:
    settings = {"agents": {"defaults": {"heartbeat": heartbeat}}, "session": {"reset": {"mode": "none"}}}
    stage = Stage(Home(path / "home"), server, config=settings)
    async with stage.open() as runtime:
        runtime.agent(DEFAULT_AGENT)
        (stage.workspace / "HEARTBEAT.md").write_text(checklist)
        async with open_heart(runtime) as heart:
            yield stage, heart


async def live(stage: Stage, heart: Heart, hours: float) -> None:
    """Let time pass, and the heart look at the clock every ten minutes."""
    end = stage.clock.now() + timedelta(hours=hours)
    while stage.clock.now() < end:
        stage.clock.advance(timedelta(minutes=10))
        await heart._beat_if_due(DEFAULT_AGENT)
        while any(map(heart.busy, (MAIN, BEATS))):
            await anyio.sleep(0)


def outcomes(heart: Heart) -> Counter[tuple[str, str]]:
    return Counter((beat.outcome, beat.detail) for beat in heart.book.log(DEFAULT_AGENT, 1_000))


@pytest.mark.slow
async def test_a_week(tmp_path: Path) -> None:
    async with Counting() as server:
        # Every fifth answer is a report, always the same one; each second of them comes within a day of the last.
        server.answer = staticmethod(lambda number: "The build is red." if number % 5 == 0 else "HEARTBEAT_OK")
        hours = {"start": "08:00", "end": "22:00", "timezone": "UTC"}
        async with beating(tmp_path, server, every="2h", activeHours=hours, isolatedSession=True) as (stage, heart):
            await live(stage, heart, 7 * 24)
            counted = outcomes(heart)
            assert sum(counted.values()) == 84
            assert counted["skipped", Skip.OUTSIDE_HOURS] == 35
            assert len(server.requests) == 49
            assert counted["quiet", ""] == 40
            assert counted["repeated", ""] == 4
            delivered = counted["delivered", "The build is red."]
            assert delivered == 5
            missed = [item.outbound.text for item in await heart.runtime.missed(MAIN)]
            assert missed == ["The build is red."] * delivered
            spent = sum(beat.tokens for beat in heart.book.log(DEFAULT_AGENT, 1_000))
            assert spent == 49 * 120


async def test_an_empty_checklist_makes_no_call(tmp_path: Path) -> None:
    async with (
        Counting() as server,
        beating(tmp_path, server, "# Heartbeat\n\n<!-- nothing yet -->\n") as (stage, heart),
    ):
        await live(stage, heart, 5)
        assert outcomes(heart) == {("skipped", Skip.NOTHING_TO_DO): 10}
        assert server.requests == []


async def test_heartbeats_can_be_off(tmp_path: Path) -> None:
    async with Counting() as server:
        for off in ({"every": "0m"}, {"enabled": False}):
            async with beating(tmp_path, server, **off) as (stage, heart):
                await live(stage, heart, 5)
                assert heart.due(DEFAULT_AGENT) is None
                assert outcomes(heart) == {}


async def test_in_the_main_session_the_checklist_comes_with_the_question(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "The build is red.")
        async with beating(tmp_path, server) as (_, heart):
            beat = await heart.beat(DEFAULT_AGENT, Wake.MANUAL)
            assert (beat.outcome, beat.wake) == ("delivered", Wake.MANUAL)
            (request,) = server.requests
            assert b"look at the build" in request.body
            (missed,) = await heart.runtime.missed(MAIN)
            assert missed.outbound.text == "The build is red."


async def test_a_report_beside_the_token_counts_by_its_length(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "HEARTBEAT_OK All quiet here.")
        async with beating(tmp_path, server, ackMaxChars=5) as (_, heart):
            assert (await heart.beat(DEFAULT_AGENT, Wake.MANUAL)).outcome == "delivered"
        async with beating(tmp_path, server) as (_, heart):
            assert (await heart.beat(DEFAULT_AGENT, Wake.MANUAL)).outcome == "quiet"


async def test_a_target_of_none_delivers_nothing(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "The build is red.")
        async with beating(tmp_path, server, target="none") as (_, heart):
            assert (await heart.beat(DEFAULT_AGENT, Wake.MANUAL)).outcome == "quiet"
            assert await heart.runtime.missed(MAIN) == ()


async def test_a_used_up_budget_stops_it(tmp_path: Path) -> None:
    async with Counting() as server:
        stage = Stage(
            Home(tmp_path / "home"),
            server,
            config={"agents": {"defaults": {"budget": {"perSource": {"heartbeat": {"tokens": 100}}}}}},
        )
        async with stage.open() as runtime:
            runtime.agent(DEFAULT_AGENT)
            (stage.workspace / "HEARTBEAT.md").write_text(CHECKLIST)
            async with open_heart(runtime) as heart:
                await live(stage, heart, 3)
                assert outcomes(heart) == {("quiet", ""): 1, ("skipped", Skip.BUDGET): 5}


async def test_only_agents_with_a_heartbeat_of_their_own_beat_where_there_are_any(tmp_path: Path) -> None:
    agents = {"agents": {"list": [{"id": "main"}, {"id": "night", "heartbeat": {"every": "1h"}}]}}
    async with staged(tmp_path, config=agents) as stage, stage.open() as runtime, open_heart(runtime) as heart:
        assert heart.agents() == ("night",)
