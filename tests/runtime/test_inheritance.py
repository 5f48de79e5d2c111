"""What a sub-agent takes over: model, reasoning, files, tools and, if wanted, the conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey
from retinue.core.messages import AssistantMessage
from retinue.core.model import ReasoningEffort
from retinue.dispatch.subagents import ChildState, SpawnOrder
from retinue.runtime.subagents.setup import SpawnRefused
from retinue.sessions.entries import Compacted
from retinue.testing.modelserver import Received
from retinue.testing.replies import Reply, refuses, says
from retinue.toolkit.sessions import CallingSession
from tests.runtime.delegation import MAIN, TASK, Follower, Scene, serving

pytestmark = pytest.mark.anyio


def quick(text: str) -> Reply:
    return says("done")


async def asked_of(scene: Scene, model: Follower, order: SpawnOrder) -> Received:
    """The request that a child made."""
    before = len(model.model_requests)
    await scene.told(await scene.spawn(order))
    return next(request for request in model.model_requests[before:] if TASK.encode() in request.body)


def agents(subagents: dict[str, Any], *own: dict[str, Any]) -> dict[str, Any]:
    return {"agents": {"defaults": {"subagents": subagents}, **({"list": list(own)} if own else {})}}


@pytest.mark.parametrize(
    ("config", "order", "used"),
    [
        ({}, SpawnOrder("x"), "test-model"),
        ({}, SpawnOrder("x", model="test/other-model"), "other-model"),
        (agents({"model": "test/other-model"}), SpawnOrder("x"), "other-model"),
        (agents({"model": {"primary": "test/other-model"}}), SpawnOrder("x", model="test/test-model"), "test-model"),
        (agents({}, {"id": "main", "subagents": {"model": "test/other-model"}}), SpawnOrder("x"), "other-model"),
        (
            agents({"model": "test/other-model"}, {"id": "main", "subagents": {"model": "test/test-model"}}),
            SpawnOrder("x"),
            "test-model",
        ),
    ],
)
async def test_the_model_is_what_was_asked_for_or_configured_for_sub_agents(
    tmp_path: Path, model: Follower, config: dict[str, Any], order: SpawnOrder, used: str
) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model, **config) as scene:
        assert (await asked_of(scene, model, order)).json["model"] == used


async def test_the_model_of_sub_agents_has_fallbacks_of_its_own(tmp_path: Path, model: Follower) -> None:
    asked: list[str] = []

    class Failing(Follower):
        async def reply_to(self, request: Received) -> Reply:
            asked.append(request.json["model"])
            return refuses(404, "no such model") if request.json["model"] == "other-model" else says("done")

    config = agents({"model": {"primary": "test/other-model", "fallbacks": ["test/test-model"]}})
    async with Failing() as failing, serving(tmp_path, failing, **config) as scene:
        child = await scene.told(await scene.spawn(SpawnOrder("x")))
        assert child.state is ChildState.DONE
        assert asked[:2] == ["other-model", "test-model"]


async def test_what_a_person_chose_for_the_conversation_holds_for_its_sub_agents(
    tmp_path: Path, model: Follower
) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model) as scene:
        await scene.say("/model test/other-model")
        await scene.say("/think high")
        assert (await asked_of(scene, model, SpawnOrder("x"))).json["model"] == "other-model"
        child = scene.subagents.store.all()[0]
        session = scene.runtime.agent(DEFAULT_AGENT).store.find(child.session)
        assert session is not None
        assert session.thinking is ReasoningEffort.HIGH
        lower = await scene.spawn(SpawnOrder("x", thinking="low"))
        session = scene.runtime.agent(DEFAULT_AGENT).store.find(lower.session)
        assert session is not None
        assert session.thinking is ReasoningEffort.LOW


async def test_a_model_that_is_none_is_told_and_the_usual_one_works(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model) as scene:
        spawned = await scene.subagents.spawn(SpawnOrder("x", model="nobody/knows"), CallingSession(MAIN, owner=True))
        assert "The model 'nobody/knows' is not available" in spawned.notes[0]
        assert (await scene.told(spawned.child)).state is ChildState.DONE
        with pytest.raises(SpawnRefused, match="'hard' is not one of"):
            await scene.spawn(SpawnOrder("x", thinking="hard"))


async def test_the_prompt_is_the_short_one_without_the_persona(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model) as scene:
        await scene.say("Hello.")
        parents = json.dumps(model.model_requests[-1].json["messages"][0])
        childs = json.dumps((await asked_of(scene, model, SpawnOrder("x"))).json["messages"][0])
    assert all(f"## {name}" in parents for name in ("AGENTS.md", "TOOLS.md", "SOUL.md", "USER.md", "IDENTITY.md"))
    assert [
        name for name in ("AGENTS.md", "TOOLS.md", "SOUL.md", "USER.md", "IDENTITY.md") if f"## {name}" in childs
    ] == [
        "AGENTS.md",
        "TOOLS.md",
    ]
    assert "## Sub-Agent Context" in childs
    assert "## Documentation" in parents
    assert "## Documentation" not in childs


async def test_a_fork_has_the_summary_and_what_came_after_and_costs_nothing_again(
    tmp_path: Path, model: Follower
) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model) as scene:
        await scene.say("My dog is called Rex.")
        store = scene.runtime.agent(DEFAULT_AGENT).store
        store.open(MAIN).append(Compacted("There is a dog.", None, 100))
        await scene.say("My cat is called Tom.")
        body = (await asked_of(scene, model, SpawnOrder("x", context="fork"))).body
        assert b"There is a dog." in body
        assert b"Tom" in body
        assert b"Rex" not in body
        child = scene.subagents.store.all()[0]
        copied = store.open(child.session).messages[1]
        assert isinstance(copied, AssistantMessage)
        assert child.usage.total == 120
        assert sum(record.usage.total for record in store.usage()) == 4 * 120


@pytest.mark.parametrize(("most", "knows"), [(100_000, True), (50, False), (0, True)])
async def test_a_conversation_that_is_too_long_is_not_forked(
    tmp_path: Path, model: Follower, most: int, knows: bool
) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model, session={"parentForkMaxTokens": most}) as scene:
        await scene.say(f"My dog is called Rex. {'And so on. ' * 50}")
        spawned = await scene.subagents.spawn(SpawnOrder("x", context="fork"), CallingSession(MAIN, owner=True))
        await scene.told(spawned.child)
        asked = next(request for request in model.model_requests if TASK.encode() in request.body)
        assert (b"Rex" in asked.body) is knows
        assert bool(spawned.notes) is not knows


async def test_a_looser_sandbox_of_another_agent_is_refused(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(quick)
    boxed = {"mode": "all", "workspaceAccess": "ro"}
    config = {
        "agents": {
            "list": [
                {"id": "main", "sandbox": boxed, "subagents": {"allowAgents": ["*"]}},
                {"id": "free"},
                {"id": "writer", "sandbox": {**boxed, "workspaceAccess": "rw"}},
                {"id": "surfer", "sandbox": {**boxed, "network": "proxy"}},
                {"id": "reader", "sandbox": {**boxed, "workspaceAccess": "none"}},
            ]
        }
    }
    async with serving(tmp_path, model, **config) as scene:
        for agent, why in (
            ("free", "outside the sandbox"),
            ("writer", "workspaceAccess` is rw, not ro"),
            ("surfer", "network` is proxy"),
        ):
            with pytest.raises(SpawnRefused, match=why):
                await scene.spawn(SpawnOrder("x", agent=AgentId(agent)))
        child = await scene.told(await scene.spawn(SpawnOrder("x", agent=AgentId("reader"))))
        assert child.session.agent == "reader"
        assert SessionKey.parse(child.session.text).agent == "reader"


@pytest.mark.parametrize(("mode", "told"), [("suggest", False), ("prefer", True)])
async def test_an_agent_is_told_to_delegate_where_that_is_preferred(
    tmp_path: Path, model: Follower, mode: str, told: bool
) -> None:
    model.answer = staticmethod(quick)
    async with serving(tmp_path, model, **agents({"delegationMode": mode})) as scene:
        await scene.say("Hello.")
        assert (b"## Sub-Agent Delegation" in model.model_requests[-1].body) is told
        asked = await asked_of(scene, model, SpawnOrder("x"))
        assert b"## Sub-Agent Delegation" not in asked.body
