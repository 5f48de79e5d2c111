"""Processes that are killed: at random moments under load, and at every write of a turn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.messages import AssistantMessage, Text, said
from retinue.sessions.entries import MessageAdded
from retinue.sessions.store import SessionStore
from tests.faults.client import MANNERS
from tests.faults.scene import Scene
from tests.faults.server import FLUSH_NOTES, RuleServer
from tests.faults.storm import SESSIONS, die_at_every_write, storm

pytestmark = pytest.mark.anyio


async def test_a_message_takes_effect_once_and_is_answered(scene: Scene) -> None:
    spoken = await scene.say("main", "main-first")
    accepted, answered = (line.split() for line in spoken.lines)
    assert accepted[::2] == ["accepted", "main-first"]
    assert answered == ["answered", accepted[1], "ok"]
    evidence = scene.evidence()
    assert [task for _, task in evidence.effects] == evidence.said == ["main-first"]
    assert evidence.violations == []
    assert scene.server.violations == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["followup", "steer", "collect"])
async def test_killing_clients_under_load_loses_and_repeats_nothing(tmp_path: Path, mode: str) -> None:
    chance = random.Random(f"storm {mode}")
    async with RuleServer(pause=lambda: chance.uniform(0.0, 0.02)) as server:
        config = {"messages": {"queue": {"mode": mode, "debounceMs": 0, "cap": 500}}}
        scene = Scene(tmp_path, server, config)
        with scene.ending_clients():
            await storm(scene, 25, chance)
            await scene.sweep(*SESSIONS)
            evidence = scene.evidence()
            assert len(evidence.accepted) > 25
            assert evidence.violations == []
            assert server.violations == []


@pytest.mark.slow
@pytest.mark.parametrize("manner", MANNERS)
async def test_a_turn_that_dies_at_any_of_its_writes_recovers(tmp_path: Path, manner: str) -> None:
    async with RuleServer() as server:
        first = Scene(tmp_path / "first", server)
        with first.ending_clients():
            await first.say("main", "main-before")
        assert await die_at_every_write(first, manner) >= 10
        assert server.violations == []


@pytest.mark.slow
async def test_the_first_turn_of_a_home_may_die_at_any_of_its_writes(tmp_path: Path) -> None:
    async with RuleServer() as server:
        assert await die_at_every_write(Scene(tmp_path / "first", server), "torn") >= 30
        assert server.violations == []


@pytest.mark.slow
async def test_a_turn_that_makes_room_may_die_at_any_of_its_writes(tmp_path: Path) -> None:
    async with RuleServer() as server:
        first = Scene(tmp_path / "first", server, window=20_000)
        with first.ending_clients():
            await first.say("main", "main-before")
        transcript = SessionStore(first.home.sessions(DEFAULT_AGENT), SystemClock()).open(
            SessionKey.main(DEFAULT_AGENT)
        )
        for number in range(20):
            transcript.append(MessageAdded(said(f"Tell me about {number}. " + "And more. " * 120)))
            transcript.append(MessageAdded(AssistantMessage((Text("It is so. " * 120),), "test/test-model")))
        assert await die_at_every_write(first, "after", window=20_000) >= 15
        assert server.violations == []
        asked = [request.json for request in server.model_requests]
        assert any("You keep the minutes" in str(body["system"]) for body in asked)
        told = [str(message) for body in asked for message in body["messages"] if message["role"] == "assistant"]
        assert not [text for text in told if "## Decisions" in text or FLUSH_NOTES in text]
