"""What keeps sub-agents within bounds: places, fairness between parents, time, budgets, and being cancelled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from retinue.core.keys import SessionKey
from retinue.dispatch.subagents import ChildState, SpawnOrder
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Fault, Reply, breaks, calls, says
from retinue.toolkit.sessions import CallingSession, SpawnArguments, SubagentsArguments
from tests.runtime.delegation import MAIN, TASK, Follower, Gated, last_words, serving

pytestmark = pytest.mark.anyio

PARENTS = tuple(SessionKey.parse(f"agent:main:parent-{name}") for name in "abc")


class Runaway(ModelServer):
    """Sub-agents of this model write file after file and never come to an end."""

    async def reply_to(self, request: Received) -> Reply:
        messages = request.json["messages"]
        if not any(TASK in str(message["content"]) for message in messages):
            return says("noted")
        await anyio.sleep(0.01)
        return calls("write", path=f"note-{len(messages)}.txt", content="more")


class Crowd(ModelServer):
    """Counts the sub-agents that it works for at one time, and in which order they begin; the gate lets them end."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.begun: list[str] = []
        self.at_once = self.most_at_once = 0

    async def reply_to(self, request: Received) -> Reply:
        text = last_words(request)
        if not text.startswith(TASK):
            return says("noted")
        self.begun.append(text.split()[-1])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.gate.wait()
        await anyio.sleep(0.01)
        self.at_once -= 1
        return says(f"done by {text.split()[-1]}")


@pytest.mark.slow
async def test_eight_run_and_fifty_wait_in_a_fair_order_and_each_is_told_once(tmp_path: Path) -> None:
    wanted = dict(zip(PARENTS, (20, 20, 18), strict=True))
    settings = {"agents": {"defaults": {"subagents": {"maxChildrenPerAgent": 20}}}}
    async with Crowd() as model, serving(tmp_path, model, **settings) as scene:
        children = [
            await scene.spawn(SpawnOrder(f"Work for {parent.text[-1]}"), parent)
            for parent, count in wanted.items()
            for _ in range(count)
        ]
        await scene.until(lambda: (model.at_once, scene.runtime.services.lanes.waiting) == (8, 50))
        model.gate.set()
        for child in children:
            await scene.told(child)
        assert model.most_at_once == 8
        assert Counter(model.begun) == {parent.text[-1]: count for parent, count in wanted.items()}
        # The first parent had all places before the others came; from then on each has its share.
        assert min(Counter(model.begun[8:32]).values()) >= 6
        await scene.until(lambda: scene.board.active == 0)
        for child in children:
            assert len(scene.announcements(child, child.parent)) == 1
        assert (scene.runtime.services.lanes.running, scene.runtime.services.lanes.waiting) == (0, 0)
        assert not scene.subagents._followed


@pytest.mark.slow
async def test_a_runaway_is_stopped_by_its_time_limit_and_its_parent_hears_why(tmp_path: Path) -> None:
    async with Runaway() as model, serving(tmp_path, model) as scene:
        wish = SpawnArguments(task="Write on and on.", run_timeout_seconds=1)
        await HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher).spawn(
            CallingSession(MAIN, owner=True), wish
        )
        child = await scene.told(scene.subagents.store.all()[0])
        assert child.state is ChildState.TIMED_OUT
        assert child.usage.total > 0
        (told,) = scene.announcements(child)
        assert "timed out" in told
        assert "stopped after 1 s" in told
        await scene.until(lambda: not scene.board.is_active(child.session))
        asked = len(model.requests)
        await anyio.sleep(0.1)
        assert len(model.requests) == asked


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ({"subagents": {"budget": {"tokens": 1000}}}, "The budget of this sub-agent is used up (1,080 of 1,000 tokens"),
        ({"budget": {"perSource": {"subagent": {"tokens": 500}}}}, "The budget for subagent turns today is used up"),
    ],
)
async def test_a_runaway_is_stopped_by_its_budget_and_its_parent_hears_why(
    tmp_path: Path, budgets: dict[str, object], why: str
) -> None:
    async with Runaway() as model, serving(tmp_path, model, agents={"defaults": budgets}) as scene:
        child = await scene.told(await scene.spawn(SpawnOrder("Write on and on.")))
        assert child.state is ChildState.FAILED
        assert why in scene.announcements(child)[0]


async def test_an_agent_can_have_a_budget_of_its_own(tmp_path: Path) -> None:
    agents = {
        "defaults": {"subagents": {"budget": {"tokens": 1_000_000}}},
        "list": [{"id": "main", "subagents": {"budget": {"tokens": 200}}}],
    }
    async with Runaway() as model, serving(tmp_path, model, agents=agents) as scene:
        child = await scene.told(await scene.spawn(SpawnOrder("Write on and on.")))
        assert "240 of 200 tokens" in child.text


@pytest.mark.slow
async def test_waiting_for_a_place_takes_nothing_from_the_time_limit(tmp_path: Path, model: Follower) -> None:
    def answer(text: str) -> Reply:
        return breaks(Fault.HANG, "…") if text == f"{TASK}\nHang." else says("done")

    model.answer = staticmethod(answer)
    settings = {"agents": {"defaults": {"subagents": {"maxConcurrent": 1}}}}
    company_asker = CallingSession(MAIN, owner=True)
    async with serving(tmp_path, model, **settings) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        await access.spawn(company_asker, SpawnArguments(task="Hang.", run_timeout_seconds=2))
        await access.spawn(company_asker, SpawnArguments(task="Be quick.", run_timeout_seconds=1))
        first, second = sorted(scene.subagents.store.all(), key=lambda child: child.task, reverse=True)
        await scene.until(lambda: scene.child(first).standing == "running")
        assert scene.child(second).standing == "queued"
        assert (await scene.told(first)).state is ChildState.TIMED_OUT
        assert (await scene.told(second)).state is ChildState.DONE


async def test_a_child_that_is_cancelled_before_its_turn_never_asks_a_model(tmp_path: Path) -> None:
    settings = {"agents": {"defaults": {"subagents": {"maxConcurrent": 1}}}}
    async with Gated() as model, serving(tmp_path, model, **settings) as scene:
        at_once = await scene.spawn(SpawnOrder("Never begun."))
        assert scene.subagents.cancel(at_once)
        first = await scene.spawn(SpawnOrder("First."))
        await scene.until(lambda: model.tasks == ["First."])
        queued = await scene.spawn(SpawnOrder("Still queued."))
        await scene.until(lambda: scene.runtime.services.lanes.waiting == 1)
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        told = await access.manage_subagents(
            CallingSession(MAIN, owner=True), SubagentsArguments(action="cancel", run=queued.run)
        )
        assert told.facts == {"cancelled": True, "runId": queued.run}
        assert not scene.subagents.cancel(queued)
        model.gate.set()
        assert (await scene.told(first)).state is ChildState.DONE
        await scene.until(lambda: scene.board.active == 0)
        assert model.tasks == ["First."]
        assert [scene.child(child).state for child in (at_once, queued)] == [ChildState.CANCELLED] * 2


async def test_one_who_is_cancelled_from_another_process_ends_and_its_parent_hears_it(tmp_path: Path) -> None:
    async with Gated() as model, serving(tmp_path, model) as scene:
        child = await scene.spawn(SpawnOrder("Work."))
        await scene.until(lambda: scene.runtime.runner(child.session).running)
        scene.subagents.store.end(child.run, ChildState.CANCELLED, child)
        await scene.told(child)
        await scene.until(lambda: not scene.board.is_active(child.session))
        assert "cancelled" in scene.announcements(child)[0]


async def test_stopping_a_conversation_ends_all_generations_and_begins_no_turn_about_it(tmp_path: Path) -> None:
    settings = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    async with Gated() as model, serving(tmp_path, model, **settings) as scene:
        child = await scene.spawn(SpawnOrder("Work."))
        grandchild = await scene.spawn(SpawnOrder("Help."), child.session)
        await scene.until(lambda: sorted(model.tasks) == ["Help.", "Work."])
        assert await scene.say("/stop") == "Stopped."
        await scene.until(lambda: scene.board.active == 0)
        assert [scene.child(each).state for each in (child, grandchild)] == [ChildState.CANCELLED] * 2
        assert scene.said() == []
