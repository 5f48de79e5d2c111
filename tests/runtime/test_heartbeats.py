"""Heartbeats through the whole runtime: calls made, suppressed and delivered are what the settings say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.automation.heartbeat import SkipReason, WakeReason, WakeRecord
from retinue.automation.jobs import Job
from retinue.automation.schedule import At
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Usage, UserMessage
from retinue.runtime.agents.prompting import HEARTBEAT_PROMPT
from retinue.runtime.automation.heartbeats import HeartbeatRunner, open_heartbeats
from retinue.runtime.automation.jobs import open_job_runner
from retinue.runtime.open import show_nothing
from retinue.runtime.turns.loop_setup import is_background
from retinue.sessions.entries import SettingChanged
from retinue.sessions.session import SPAWNED_BY
from retinue.sessions.settings import BudgetSettings
from retinue.sessions.usage import Spending, find_exceeded, has_limits
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import START
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Fault, Reply, breaks, refuses, says
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
) -> AsyncIterator[tuple[Stage, HeartbeatRunner]]:
    settings = {"agents": {"defaults": {"heartbeat": heartbeat}}, "session": {"reset": {"mode": "none"}}}
    stage = Stage(HomePaths(path / "home"), server, config=settings)
    async with awake(stage, checklist) as heart:
        yield stage, heart


@asynccontextmanager
async def awake(stage: Stage, checklist: str = CHECKLIST) -> AsyncIterator[HeartbeatRunner]:
    async with stage.open() as runtime:
        runtime.agent(DEFAULT_AGENT)
        (stage.workspace / "HEARTBEAT.md").write_text(checklist)
        async with open_heartbeats(runtime.dispatcher) as heart:
            yield heart


async def live(stage: Stage, heart: HeartbeatRunner, hours: float) -> None:
    """Let time pass, and the heart look at the clock every ten minutes."""
    end = stage.clock.now() + timedelta(hours=hours)
    while stage.clock.now() < end:
        stage.clock.advance(timedelta(minutes=10))
        await heart._run_if_due(DEFAULT_AGENT)
        await rest(heart)


async def rest(heart: HeartbeatRunner) -> None:
    """Wait until nobody is at work any more."""
    while any(map(heart.dispatcher.is_active, (MAIN, BEATS))):
        await anyio.sleep(0)


def outcomes(heart: HeartbeatRunner) -> Counter[tuple[str, str]]:
    return Counter((beat.outcome, beat.detail) for beat in heart.wake_log.log(DEFAULT_AGENT, 1_000))


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
            assert counted["skipped", SkipReason.OUTSIDE_HOURS] == 35
            assert len(server.requests) == 49
            assert counted["quiet", ""] == 40
            assert counted["repeated", ""] == 4
            delivered = counted["delivered", "The build is red."]
            assert delivered == 5
            missed = [item.outbound.text for item in heart.sessions.services.inbox.undelivered(MAIN)]
            assert missed == ["The build is red."] * delivered
            spent = sum(beat.tokens for beat in heart.wake_log.log(DEFAULT_AGENT, 1_000))
            assert spent == 49 * 120


async def test_an_empty_checklist_makes_no_call(tmp_path: Path) -> None:
    async with (
        Counting() as server,
        beating(tmp_path, server, "# Heartbeat\n\n<!-- nothing yet -->\n") as (stage, heart),
    ):
        await live(stage, heart, 5)
        assert outcomes(heart) == {("skipped", SkipReason.NOTHING_TO_DO): 10}
        assert server.requests == []


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(days=1), timedelta(days=400)])
async def test_heartbeats_go_on_after_a_clock_that_was_ahead(tmp_path: Path, jump: timedelta) -> None:
    async with Counting() as server, beating(tmp_path, server, "# Heartbeat\n") as (stage, heart):
        await live(stage, heart, 1)
        stage.clock.set(jump)
        await heart._run_if_due(DEFAULT_AGENT)
        stage.clock.advance(timedelta(seconds=14))
        stage.clock.set(-jump)
        await heart._run_if_due(DEFAULT_AGENT)
        due = heart.due(DEFAULT_AGENT)
        assert due == stage.clock.now() + timedelta(minutes=30)
        await live(stage, heart, 0.5)
        last = heart.wake_log.last(DEFAULT_AGENT)
        assert last is not None
        assert last.at == due


@pytest.mark.slow
async def test_heartbeats_run_in_a_gateway_that_restarts_more_often_than_the_interval(tmp_path: Path) -> None:
    async with Counting() as server:
        stage = Stage(HomePaths(tmp_path / "home"), server)
        for _ in range(13):
            async with awake(stage, "# Heartbeat\n") as heart:
                await heart._run_if_due(DEFAULT_AGENT)
                count = len(heart.wake_log.log(DEFAULT_AGENT, 10))
            stage.clock.advance(timedelta(minutes=10))
        assert count == 4


async def test_an_interval_below_the_minimum_gap_runs_at_the_gap(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, every="10s", isolatedSession=True) as (stage, heart):
        for _ in range(13):
            await heart._run_if_due(DEFAULT_AGENT)
            await rest(heart)
            stage.clock.advance(timedelta(seconds=10))
        assert len(server.requests) == 4


async def test_heartbeats_can_be_off(tmp_path: Path) -> None:
    async with Counting() as server:
        for off in ({"every": "0m"}, {"enabled": False}):
            async with beating(tmp_path, server, **off) as (stage, heart):
                await live(stage, heart, 5)
                assert heart.due(DEFAULT_AGENT) is None
                assert outcomes(heart) == {}


async def test_in_the_main_session_the_checklist_stands_in_front_of_the_question(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "The build is red.")
        async with beating(tmp_path, server) as (_, heart):
            beat = await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
            assert (beat.outcome, beat.wake) == ("delivered", WakeReason.MANUAL)
            (request,) = server.requests
            system, asked = request.json["messages"]
            assert "look at the build" not in system["content"]
            assert asked["content"].index("look at the build") < asked["content"].index(HEARTBEAT_PROMPT)
            (missed,) = heart.sessions.services.inbox.undelivered(MAIN)
            assert missed.outbound.text == "The build is red."


async def test_a_heartbeat_moves_nothing_of_what_a_provider_has_cached(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server) as (stage, heart):
        await heart.dispatcher.say(Inbound("hello", MAIN), show_nothing)
        await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
        await rest(heart)
        (stage.workspace / "HEARTBEAT.md").write_text("- [ ] something else\n")
        await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
        await heart.dispatcher.say(Inbound("and now?", MAIN), show_nothing)
        sent = [request.json for request in server.requests]
        assert len(sent) == 4
        for earlier, later in pairwise(sent):
            assert earlier["tools"] == later["tools"]
            assert later["messages"][: len(earlier["messages"])] == earlier["messages"]


async def test_a_report_beside_the_token_counts_by_its_length(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "HEARTBEAT_OK All quiet here.")
        async with beating(tmp_path, server, ackMaxChars=5) as (_, heart):
            assert (await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)).outcome == "delivered"
        async with beating(tmp_path, server) as (_, heart):
            assert (await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)).outcome == "quiet"


async def test_a_target_of_none_delivers_nothing(tmp_path: Path) -> None:
    async with Counting() as server:
        server.answer = staticmethod(lambda number: "The build is red.")
        async with beating(tmp_path, server, target="none") as (_, heart):
            assert (await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)).outcome == "quiet"
            assert heart.sessions.services.inbox.undelivered(MAIN) == ()


async def test_a_used_up_budget_stops_it(tmp_path: Path) -> None:
    async with Counting() as server:
        stage = Stage(
            HomePaths(tmp_path / "home"),
            server,
            config={"agents": {"defaults": {"budget": {"perSource": {"heartbeat": {"tokens": 100}}}}}},
        )
        async with awake(stage) as heart:
            await live(stage, heart, 3)
            assert outcomes(heart) == {("quiet", ""): 1, ("skipped", SkipReason.BUDGET): 5}


async def test_only_agents_with_a_heartbeat_of_their_own_beat_where_there_are_any(tmp_path: Path) -> None:
    agents = {"agents": {"list": [{"id": "main"}, {"id": "night", "heartbeat": {"every": "1h"}}]}}
    async with (
        staged(tmp_path, config=agents) as stage,
        stage.open() as runtime,
        open_heartbeats(runtime.dispatcher) as heart,
    ):
        assert heart.agents() == ("night",)


async def test_an_isolated_heartbeat_remembers_nothing_of_the_last(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, isolatedSession=True) as (_, heart):
        await heart.dispatcher.say(Inbound("hello", MAIN), show_nothing)
        for _ in range(2):
            await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
            await rest(heart)
        assert [len(request.json["messages"]) for request in server.requests] == [2, 2, 2]
        assert all("hello" not in str(request.json["messages"][1:]) for request in server.requests[1:])


async def test_a_light_heartbeat_sees_the_checklist_alone(tmp_path: Path) -> None:
    async with Counting() as server:
        for light in (False, True):
            async with beating(tmp_path, server, isolatedSession=True, lightContext=light) as (stage, heart):
                (stage.workspace / "SOUL.md").write_text("Curious as a cat.")
                await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
                system, asked = server.requests[-1].json["messages"]
                assert ("Curious as a cat." in system["content"]) is not light
                assert "look at the build" in asked["content"]
        async with beating(tmp_path, server, isolatedSession=True, lightContext=True) as (_, heart):
            await heart.dispatcher.say(Inbound("hello", MAIN), show_nothing)
            assert "Curious as a cat." in server.requests[-1].body.decode()


async def test_the_reasoning_is_delivered_where_that_is_wanted(tmp_path: Path) -> None:
    thought = says("The build is red.", thinking="I looked at secret-key-0123456789.")
    for wanted, told in ((False, "The build is red."), (True, "Reasoning:\n\nI looked at")):
        async with ModelServer(thought) as server:
            place = tmp_path / str(wanted)
            async with beating(place, server, includeReasoning=wanted) as (_, heart):
                await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
                (missed,) = heart.sessions.services.inbox.undelivered(MAIN)
                assert missed.outbound.text.startswith(told)
                assert missed.outbound.text.endswith("The build is red.")
                assert "secret-key" not in missed.outbound.text


async def test_another_model_can_look_after_things(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, model="test/other-model") as (_, heart):
        await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
        await heart.dispatcher.say(Inbound("hello", MAIN), show_nothing)
        assert [request.json["model"] for request in server.requests] == ["other-model", "test-model"]


async def test_a_question_of_ones_own_still_says_how_to_stay_quiet(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, prompt="Look at the sky.") as (_, heart):
        await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
        asked = server.requests[0].json["messages"][1]["content"]
        assert "Look at the sky." in asked
        assert "reply HEARTBEAT_OK" in asked


async def test_active_hours_are_those_of_the_zone_that_is_named(tmp_path: Path) -> None:
    async with Counting() as server:
        # It is noon in London when the clock of a stage begins, and night on the other side of the world.
        for zone, called in (("Europe/London", 1), ("Pacific/Auckland", 0)):
            hours = {"start": "08:00", "end": "18:00", "timezone": zone}
            before = len(server.requests)
            async with beating(tmp_path / str(called), server, every="30m", activeHours=hours) as (stage, heart):
                await live(stage, heart, 0.5)
                assert len(server.requests) - before == called


async def test_a_heartbeat_that_fails_is_not_tried_again_before_its_time(tmp_path: Path) -> None:
    async with ModelServer(then=refuses(401)) as server, beating(tmp_path, server, every="30m") as (stage, heart):
        await live(stage, heart, 2)
        assert [beat.outcome for beat in heart.wake_log.log(DEFAULT_AGENT, 100)] == ["failed"] * 4


async def test_what_waits_for_the_next_heartbeat_is_told_once_and_taints_it(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, "# nothing\n") as (stage, heart):
        heart.agenda.put(DEFAULT_AGENT, "A parcel has arrived.", foreign=True, token="parcel-7")
        heart.agenda.put(DEFAULT_AGENT, "A parcel has arrived.", foreign=True, token="parcel-7")
        await live(stage, heart, 1)
        heart.agenda.put(DEFAULT_AGENT, "A parcel has arrived.", foreign=True, token="parcel-7")
        await live(stage, heart, 1)
        assert outcomes(heart) == {("quiet", ""): 1, ("skipped", SkipReason.NOTHING_TO_DO): 3}
        (request,) = server.requests
        assert request.body.decode().count("A parcel has arrived.") == 1
        entries = heart.sessions.agent(DEFAULT_AGENT).store.open(MAIN).messages
        assert [message.label for message in entries if isinstance(message, UserMessage)] == [Label.UNTRUSTED]


async def test_each_agent_has_a_heartbeat_of_its_own(tmp_path: Path) -> None:
    night = {"id": "night", "heartbeat": {"every": "1h", "prompt": "Look at the stars.", "target": "none"}}
    agents = {"defaults": {"heartbeat": {"every": "30m"}}, "list": [{"id": "main", "heartbeat": {}}, night]}
    async with (
        ModelServer(then=says("HEARTBEAT_OK")) as server,
        awake(Stage(HomePaths(tmp_path / "home"), server, config={"agents": agents})) as heart,
    ):
        stage_clock = heart.sessions.home.clock
        dues = {agent: heart.due(agent) for agent in heart.agents()}
        assert dues == {
            DEFAULT_AGENT: stage_clock.now() + timedelta(minutes=30),
            AgentId("night"): stage_clock.now() + timedelta(hours=1),
        }
        room = heart.sessions.agent(AgentId("night")).workspace
        (room.root.path / "HEARTBEAT.md").write_text(CHECKLIST)
        await heart.run_now(AgentId("night"), WakeReason.INTERVAL)
        assert "Look at the stars." in server.requests[0].body.decode()
        assert heart.wake_log.last(DEFAULT_AGENT) is None


async def test_every_wake_is_written_down_with_its_reason(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server) as (_, heart):
        await heart.run_now(DEFAULT_AGENT, WakeReason.INTERVAL)
        async with open_job_runner(heart.dispatcher) as runner:
            job = Job("", "news", DEFAULT_AGENT, At(START + timedelta(hours=1)), "What is new?")
            await runner.run_now(runner.store.add(job))
        last, first = heart.wake_log.log(DEFAULT_AGENT, 10)
        assert (first.wake, first.outcome) == (WakeReason.INTERVAL, "quiet")
        assert (last.wake, last.outcome) == (WakeReason.CRON, "woken")
        assert "[Scheduled job" in last.detail
        assert heart.wake_log.last(DEFAULT_AGENT) == first


@pytest.mark.slow
async def test_a_heartbeat_waits_for_nobody_and_takes_only_its_time(tmp_path: Path) -> None:
    async with (
        ModelServer(breaks(Fault.HANG)) as server,
        beating(tmp_path, server, timeoutSeconds=1) as (_, heart),
        anyio.create_task_group() as tasks,
    ):
        beats: list[WakeRecord] = []

        async def beat() -> None:
            beats.append(await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL))

        tasks.start_soon(beat)
        while not server.requests:
            await anyio.sleep(0.01)
        assert (await heart.run_now(DEFAULT_AGENT, WakeReason.INTERVAL)).detail == SkipReason.BUSY
        while not beats:
            await anyio.sleep(0.01)
        assert (beats[0].outcome, beats[0].detail) == ("failed", "it took longer than 1 s and was stopped")
        assert list(heart.wake_log.log(DEFAULT_AGENT, 10)) == beats


@pytest.mark.slow
async def test_a_heartbeat_without_reports_slows_down_and_says_so_once(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, every="30m") as (stage, heart):
        old = (START - timedelta(days=1)).timestamp()
        os.utime(stage.workspace / "HEARTBEAT.md", (old, old))
        await live(stage, heart, 6)
        assert heart.interval(DEFAULT_AGENT) == timedelta(hours=1)
        await live(stage, heart, 18)
        assert heart.interval(DEFAULT_AGENT) == timedelta(hours=2)
        assert len(server.requests) == 12 + 12 + 3
        told = [item.outbound.text for item in heart.sessions.services.inbox.undelivered(MAIN)]
        assert [text.partition("every ")[2][:14] for text in told] == ["1h instead of ", "2h instead of "]
        server.answer = staticmethod(lambda number: "The build is red.")
        await live(stage, heart, 2)
        assert heart.interval(DEFAULT_AGENT) == timedelta(minutes=30), "it reported something"


@pytest.mark.slow
async def test_a_changed_checklist_or_the_setting_keeps_the_interval(tmp_path: Path) -> None:
    async with Counting() as server, beating(tmp_path, server, every="30m", slowDown=False) as (stage, heart):
        old = (START - timedelta(days=1)).timestamp()
        os.utime(stage.workspace / "HEARTBEAT.md", (old, old))
        await live(stage, heart, 7)
        assert heart.interval(DEFAULT_AGENT) == timedelta(minutes=30)
    async with Counting() as server, beating(tmp_path / "other", server, every="30m") as (stage, heart):
        os.utime(stage.workspace / "HEARTBEAT.md", (old, old))
        await live(stage, heart, 7)
        new = stage.clock.now().timestamp()
        os.utime(stage.workspace / "HEARTBEAT.md", (new, new))
        assert heart.interval(DEFAULT_AGENT) == timedelta(minutes=30)


async def test_background_work_has_a_daily_budget_that_is_reported_once(tmp_path: Path) -> None:
    async with Counting() as server:
        budget = {"budget": {"background": {"tokens": 300}}, "userTimezone": "UTC"}
        stage = Stage(HomePaths(tmp_path / "home"), server, config={"agents": {"defaults": budget}})
        async with awake(stage) as heart:
            await live(stage, heart, 4)
            assert outcomes(heart) == {("quiet", ""): 3, ("skipped", SkipReason.BUDGET): 5}
            told = [item.outbound.text for item in heart.sessions.services.inbox.undelivered(MAIN)]
            assert len(told) == 1
            assert "The daily budget for background work is used up (360 of 300 tokens)" in told[0]
            assert "agents.defaults.budget.background" in told[0]
            job = Job("", "late", DEFAULT_AGENT, At(stage.clock.now() + timedelta(hours=1)), "Report.")
            async with open_job_runner(heart.dispatcher) as runner:
                ran = await runner.run_now(runner.store.add(job))
            assert "background work is used up" in ran.summary
            assert len(heart.sessions.services.inbox.undelivered(MAIN)) == 1, "a refused job does not tell it again"
            answer = await heart.dispatcher.say(Inbound("hello", MAIN), show_nothing)
            assert answer.error is None, "a person is answered all the same"
            assert len(server.requests) == 4
            stage.clock.advance(timedelta(days=1))
            await heart._run_if_due(DEFAULT_AGENT)
            assert len(server.requests) == 5, "the next day has its own budget"


async def test_background_work_is_limited_without_any_configuration() -> None:
    budget = BudgetSettings()
    assert has_limits(budget, background=True)
    assert not has_limits(budget, background=False), "the turns of a person need no count"
    spent = Spending((), Usage(), background=Usage(cost=2.0))
    assert "$2.00 of $2.00" in (find_exceeded(budget, spent, Source.CRON) or "")
    assert find_exceeded(budget, Spending((), Usage(), background=Usage(cost=1.9)), Source.CRON) is None


async def test_the_demo_model_has_no_heartbeat(tmp_path: Path) -> None:
    async with Counting() as server:
        config = {"agents": {"defaults": {"heartbeat": {"model": "local/smollm2-135m"}}}}
        stage = Stage(HomePaths(tmp_path / "home"), server, config=config)
        async with awake(stage) as heart:
            beat = await heart.run_now(DEFAULT_AGENT, WakeReason.MANUAL)
            assert (beat.outcome, beat.skip) == ("skipped", SkipReason.DEMO)


async def test_sub_agents_of_background_work_count_as_such(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        agent = runtime.agent(DEFAULT_AGENT)

        def child(name: str, parent: str) -> SessionKey:
            key = SessionKey.parse(f"agent:main:subagent:{name}")
            agent.store.open(key).append(SettingChanged(SPAWNED_BY, parent))
            return key

        of_job = child("one", "agent:main:cron:daily:run:1")
        nested = child("one:subagent:two", of_job.text)
        of_chat = child("three", MAIN.text)
        judged = [is_background(agent, key, Source.SUBAGENT) for key in (of_job, nested, of_chat)]
        assert judged == [True, True, False]
        assert is_background(agent, MAIN, Source.CRON)
        assert not is_background(agent, MAIN, Source.CHAT)
