"""The tools for working with others: who sees whom, and what sub-agents are asked and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Text, UserMessage
from retinue.dispatch.subagents import SpawnOrder
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.sessions.entries import MessageAdded
from retinue.structs.decode import DecodeError, decode
from retinue.testing.replies import calls, says
from retinue.toolkit.sessions import (
    CallingSession,
    SessionsHistoryArguments,
    SessionsSendArguments,
    SpawnArguments,
    SubagentsArguments,
)
from tests.runtime.conftest import Stage
from tests.runtime.delegation import MAIN, Follower, Gated, rows, serving

pytestmark = pytest.mark.anyio

ASKER = CallingSession(MAIN, owner=True)
IDEAS = SessionKey.parse("agent:main:ideas")
WRITER = SessionKey.main(AgentId("writer"))
BETWEEN = {"enabled": True, "allow": ["writer"]}


@pytest.mark.parametrize(
    ("tools", "seen"),
    [
        ({"sessions": {"visibility": "self"}}, {"main"}),
        ({"sessions": {"visibility": "tree"}}, {"main", "child"}),
        ({"sessions": {"visibility": "agent"}}, {"main", "child", "ideas"}),
        ({"sessions": {"visibility": "all"}}, {"main", "child", "ideas"}),
        ({"sessions": {"visibility": "all"}, "agentToAgent": BETWEEN}, {"main", "child", "ideas", "writer"}),
        ({"sessions": {"visibility": "agent"}, "agentToAgent": BETWEEN}, {"main", "child", "ideas"}),
    ],
)
async def test_a_session_sees_and_reaches_what_its_visibility_says(
    tmp_path: Path, model: Follower, tools: dict[str, Any], seen: set[str]
) -> None:
    model.answer = staticmethod(lambda text: says("hello"))
    agents = {"list": [{"id": "main"}, {"id": "writer"}]}
    async with serving(tmp_path, model, tools=tools, agents=agents) as scene:
        for key in (MAIN, IDEAS, WRITER):
            await scene.say("Hi.", key)
        child = await scene.told(await scene.spawn(SpawnOrder("Work.")))
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        keys = {"main": MAIN, "ideas": IDEAS, "writer": WRITER, "child": child.session}
        listed = {row["key"] for row in rows(await access.sessions(ASKER, 50))}
        assert listed == {keys[name].text for name in seen}
        for name, key in keys.items():
            if name in seen:
                assert "hello" in str((await access.history(ASKER, key.text, 5)).facts)
            else:
                with pytest.raises(UsageError, match="You may not reach"):
                    await access.history(ASKER, key.text, 5)
                with pytest.raises(UsageError, match="You may not reach"):
                    await access.send(ASKER, SessionsSendArguments(session_key=key.text, message="psst"))


async def test_sub_agents_are_listed_steered_and_read_by_their_parent(tmp_path: Path) -> None:
    async with Gated("It is 42.") as model, serving(tmp_path, model) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        child = await scene.spawn(SpawnOrder("Find the answer.", label="search"))
        await scene.until(lambda: scene.child(child).started_at is not None)
        (row,) = rows(await access.manage_subagents(ASKER, SubagentsArguments()))
        assert (row["runId"], row["label"], row["state"]) == (child.run, "search", "running")
        with pytest.raises(UsageError, match="needs a message"):
            await access.manage_subagents(ASKER, SubagentsArguments(action="steer", run=child.run))
        await access.manage_subagents(ASKER, SubagentsArguments(action="steer", run=child.run, message="Look again."))
        model.gate.set()
        await scene.told(child)
        told = await access.manage_subagents(ASKER, SubagentsArguments(action="log", run=child.run))
        assert isinstance(told.facts, dict)
        assert "Look again." in str(told.facts["messages"])
        assert told.facts["state"] == "completed"
        with pytest.raises(UsageError, match="has ended"):
            await access.manage_subagents(ASKER, SubagentsArguments(action="steer", run=child.run, message="More."))
        with pytest.raises(UsageError, match="needs `run`"):
            await access.manage_subagents(ASKER, SubagentsArguments(action="cancel"))


async def test_an_agent_learns_whom_it_may_start(tmp_path: Path, model: Follower) -> None:
    agents = {"list": [{"id": "main", "subagents": {"allowAgents": ["writer"]}}, {"id": "writer"}, {"id": "cook"}]}
    async with serving(tmp_path, model, agents=agents) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        assert [row["id"] for row in rows(await access.agents(ASKER))] == ["main", "writer"]
        assert [row["id"] for row in rows(await access.agents(CallingSession(WRITER, owner=True)))] == ["writer"]


async def test_words_of_a_session_that_read_text_from_outside_are_marked(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(lambda text: says("hello"))
    async with serving(tmp_path, model, tools={"sessions": {"visibility": "agent"}}) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        await scene.say("Hi.", IDEAS)
        assert not (await access.history(ASKER, "ideas", 5)).foreign
        careful = CallingSession(MAIN, owner=True, tainted=True)
        answer = await access.send(careful, SessionsSendArguments(session_key="ideas", message="A page says so."))
        assert answer.foreign
        last = scene.runtime.agent(DEFAULT_AGENT).store.open(IDEAS).messages[-2]
        assert isinstance(last, UserMessage)
        assert last.label.is_foreign
        assert (await access.history(ASKER, "ideas", 5)).foreign


async def test_a_child_that_read_text_from_outside_is_read_with_care(tmp_path: Path) -> None:
    async with Gated() as model, serving(tmp_path, model) as scene:
        child = await scene.spawn(SpawnOrder("Read."))
        await scene.until(lambda: bool(model.tasks))
        page = UserMessage((Text("a page"),), label=Label.UNTRUSTED)
        scene.runtime.agent(DEFAULT_AGENT).store.open(child.session).append(MessageAdded(page))
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        assert (await access.manage_subagents(ASKER, SubagentsArguments(action="log", run=child.run))).foreign
        model.gate.set()
        await scene.told(child)
        assert (await access.manage_subagents(ASKER, SubagentsArguments())).foreign


async def test_a_child_goes_by_the_name_that_its_parent_gave_it(tmp_path: Path) -> None:
    async with Gated("It is 42.") as model, serving(tmp_path, model) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        wish = decode(SpawnArguments, {"task": "Look.", "taskName": "scout-1"})
        await access.spawn(ASKER, wish)
        with pytest.raises(UsageError, match="is called 'scout-1'"):
            await access.spawn(ASKER, wish)
        await scene.until(lambda: bool(model.tasks))
        await access.manage_subagents(ASKER, SubagentsArguments(action="steer", run="scout-1", message="Look again."))
        model.gate.set()
        (row,) = rows(await access.manage_subagents(ASKER, SubagentsArguments()))
        await scene.told(scene.subagents.store.get(row["runId"]))
        told = await access.manage_subagents(ASKER, SubagentsArguments(action="log", run="scout-1"))
        assert isinstance(told.facts, dict)
        assert (told.facts["runId"], told.facts["taskName"]) == (row["runId"], "scout-1")
        assert "Look again." in str(told.facts["messages"])
        with pytest.raises(UsageError, match="no sub-agent"):
            await access.manage_subagents(
                CallingSession(IDEAS, owner=True), SubagentsArguments(action="log", run="scout-1")
            )
        await access.spawn(ASKER, wish)


@pytest.mark.parametrize("name", ["Scout", "1st", "a b", "a" * 65, "scout\n"])
def test_a_name_is_short_and_plain(name: str) -> None:
    with pytest.raises(DecodeError):
        decode(SpawnArguments, {"task": "x", "taskName": name})


async def test_a_session_that_has_nothing_to_say_to_another_ends_the_exchange(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(lambda text: says("REPLY_SKIP"))
    async with serving(tmp_path, model, tools={"sessions": {"visibility": "agent"}}) as scene:
        told = await HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher).send(
            ASKER, SessionsSendArguments(session_key="ideas", message="Thanks.")
        )
        assert isinstance(told.facts, dict)
        assert (told.facts["status"], told.facts["answer"]) == ("silent", None)


@pytest.mark.parametrize("name", ["sessionKey", "session_key", "session"])
def test_a_session_is_named_by_its_key(name: str) -> None:
    assert decode(SessionsHistoryArguments, {name: "ideas"}).session_key == "ideas"
    assert decode(SessionsSendArguments, {name: "ideas", "message": "Hi."}).session_key == "ideas"


async def test_a_model_of_an_unknown_provider_is_answered_with_the_known_ones(stage: Stage) -> None:
    stage.server.push(calls("session_status", model="nope/x"), says("There is no such model."))
    (answer,) = await stage.ask("Use nope/x.")
    assert answer.text == "There is no such model."
    result = str(stage.server.model_requests[1].json["messages"][-1])
    assert "There is no provider 'nope'. Known: " in result
    assert "test" in result
