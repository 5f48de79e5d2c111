"""Several processes that talk in one session at the same time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.scene import Client, Scene
from tests.faults.server import RuleServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PROCESSES, MESSAGES = 4, 10


async def talk_at_once(scene: Scene) -> list[Client]:
    crowd = [scene.start("main", f"main-{number}", "--messages", str(MESSAGES)) for number in range(PROCESSES)]
    for talker in crowd:
        assert await talker.wait() == 0, talker.complaint
    return crowd


async def test_messages_of_several_processes_are_answered_one_by_one_in_the_order_of_acceptance(scene: Scene) -> None:
    crowd = await talk_at_once(scene)
    evidence = scene.evidence()
    assert len(evidence.accepted) == PROCESSES * MESSAGES
    assert evidence.said == list(evidence.kept) == [task for _, task in evidence.effects]
    assert evidence.violations == scene.server.violations == []
    assert scene.server.most_at_once["main"] == 1
    assert Counter(line.split()[2] for talker in crowd for line in talker.lines if line.startswith("answered")) == {
        "ok": PROCESSES * MESSAGES
    }


@pytest.mark.parametrize("mode", ["followup", "collect", "interrupt", "steer"])
async def test_a_message_that_arrives_during_a_run_is_never_lost(tmp_path: Path, mode: str) -> None:
    async with RuleServer(pause=lambda: 0.03) as server:
        config = {"messages": {"queue": {"mode": mode, "debounceMs": 10, "cap": 500}}}
        scene = Scene(tmp_path, server, config)
        with scene.ending_clients():
            crowd = await talk_at_once(scene)
            evidence = scene.evidence()
            assert len(evidence.accepted) == PROCESSES * MESSAGES
            assert evidence.said == list(evidence.kept)
            assert evidence.violations == server.violations == []
            if mode != "interrupt":  # there a request that was given up may still be with the server
                assert server.most_at_once["main"] == 1
            statuses = {line.split()[2] for talker in crowd for line in talker.lines if line.startswith("answered")}
            assert statuses <= ({"ok", "aborted"} if mode == "interrupt" else {"ok"})


async def test_a_message_waits_for_a_turn_of_another_process_and_takes_over_when_that_dies(scene: Scene) -> None:
    scene.server.hold()
    first = scene.start("main", "main-first")
    await first.wait_for("accepted")
    await scene.server.wait_for_requests(1)
    second = scene.start("main", "main-second")
    await second.wait_for("accepted")
    await first.kill()
    scene.server.release()
    assert await second.wait() == 0
    evidence = scene.evidence()
    assert evidence.said == [task for _, task in evidence.effects] == ["main-first", "main-second"]
    assert evidence.violations == scene.server.violations == []
