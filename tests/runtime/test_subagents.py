"""Sub-agents through the whole runtime: started by a tool, answered on their own, announced once, whatever happens."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.events import TextDelta
from retinue.core.keys import DEFAULT_AGENT, AgentId, RunId, SessionKey
from retinue.dispatch.subagents import (
    MAX_UNREAD_RESULTS,
    Child,
    ChildState,
    SpawnFacts,
    SpawnOrder,
    SubagentStore,
    depth_of,
    find_refusal,
    key_for_child,
)
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.storage.home_paths import HomePaths
from retinue.testing.replies import Fault, Reply, breaks, calls, says
from retinue.toolkit.sessions import (
    CallingSession,
    SessionsSendArguments,
    SpawnArguments,
    SubagentsArguments,
)
from tests.runtime.conftest import Stage
from tests.runtime.delegation import MAIN, Follower, delegating, rows, serving

pytestmark = pytest.mark.anyio


async def test_a_child_works_alone_and_its_parent_is_told_once(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(delegating)
    async with serving(tmp_path, model) as scene:
        assert await scene.say("What is the answer?") == "I handed it on."
        await scene.until(lambda: "My sub-agent found 42." in scene.said())
        (child,) = scene.subagents.store.all()
        child = await scene.told(child)
        assert (child.state, child.text, child.label) == (ChildState.DONE, "The answer is 42.", "search")
        assert child.told_at is not None
        assert child.session.text.startswith("agent:main:subagent:")
        (told,) = [text for text in scene.said() if text.startswith(f"[Sub-agent {child.run} (search) completed")]
        assert "The answer is 42." in told
        assert child.session.text in told
        assert ".jsonl" in told
        asked = next(request for request in model.requests if b"[Sub-agent task]" in request.body)
        assert b"What is the answer?" not in asked.body


async def test_a_fork_knows_the_conversation(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(lambda text: says("yes"))
    async with serving(tmp_path, model) as scene:
        await scene.say("My dog is called Rex.")
        child = (
            await scene.subagents.spawn(SpawnOrder("Name my dog.", context="fork"), CallingSession(MAIN, owner=True))
        ).child
        await scene.until(lambda: scene.subagents.store.get(child.run).told_at is not None)
        asked = next(request for request in model.requests if b"[Sub-agent task]" in request.body)
        assert b"My dog is called Rex." in asked.body


async def test_a_runaway_child_is_stopped_by_its_time_limit(tmp_path: Path, model: Follower) -> None:
    def answer(text: str) -> Reply:
        return breaks(Fault.HANG, "thinking") if text.startswith("[Sub-agent task]") else says("noted")

    model.answer = staticmethod(answer)
    async with serving(tmp_path, model) as scene:
        asker = CallingSession(MAIN, owner=True)
        wish = SpawnArguments(task="Think forever.", run_timeout_seconds=1)
        await HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher).spawn(asker, wish)
        await scene.until(lambda: any("timed out" in text for text in scene.said()))
        (child,) = scene.subagents.store.all()
        assert child.state is ChildState.TIMED_OUT
        assert "stopped after 1 s" in child.text


async def test_stopping_the_parent_stops_its_children(tmp_path: Path, model: Follower) -> None:
    def answer(text: str) -> Reply:
        return breaks(Fault.HANG, "working") if text.startswith("[Sub-agent task]") else says("noted")

    model.answer = staticmethod(answer)
    async with serving(tmp_path, model) as scene:
        child = (await scene.subagents.spawn(SpawnOrder("Work on."), CallingSession(MAIN, owner=True))).child
        await scene.until(lambda: scene.runtime.runner(child.session).running)
        assert await scene.say("/stop") == "Stopped."
        await scene.until(lambda: scene.subagents.store.get(child.run).told_at is not None)
        assert scene.subagents.store.get(child.run).state is ChildState.CANCELLED
        await scene.until(lambda: not scene.runtime.runner(child.session).running)


@pytest.mark.parametrize("partial", ["", "working"], ids=["nothing-received", "part-of-the-answer-received"])
async def test_what_a_process_left_is_finished_and_told_once_by_the_next(
    tmp_path: Path, model: Follower, partial: str
) -> None:
    """Also if the process ended in the middle of an answer: its part must not be the end of the next request."""
    gate = anyio.Event()

    def answer(text: str) -> Reply:
        if text.startswith("[Sub-agent task]"):
            return says("done at last") if gate.is_set() else breaks(Fault.HANG, partial)
        return says("noted")

    model.answer = staticmethod(answer)
    async with serving(tmp_path, model) as scene:
        child = (await scene.subagents.spawn(SpawnOrder("Take your time."), CallingSession(MAIN, owner=True))).child
        await scene.until(lambda: scene.runtime.runner(child.session).running)
        await scene.until(lambda: bool(model.requests))
        if partial:
            await scene.until(lambda: TextDelta(partial) in scene.events)
    gate.set()
    for _ in range(2):
        async with serving(tmp_path, model) as scene:
            scene.board.resume()
            scene.subagents.adopt()
            await scene.until(lambda: scene.subagents.store.get(child.run).told_at is not None)
            await scene.until(lambda: "noted" in scene.said())
            told = [text for text in scene.said() if text.startswith(f"[Sub-agent {child.run}")]
            assert len(told) == 1
            assert scene.subagents.store.get(child.run).text == "done at last"
    assert all(request.json["messages"][-1]["role"] == "user" for request in model.model_requests)


async def test_a_child_that_was_told_is_put_away_after_its_time(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(delegating)
    async with serving(tmp_path, model) as scene:
        child = (
            await scene.subagents.spawn(SpawnOrder("Find it.", cleanup="delete"), CallingSession(MAIN, owner=True))
        ).child
        await scene.until(lambda: scene.subagents.store.get(child.run).archived_at is not None)
        store = scene.runtime.agent(DEFAULT_AGENT).store
        assert store.find(child.session) is None
        assert [kept.why for kept in store.archives()] == ["deleted"]
        assert scene.subagents.store.get(child.run).text == "The answer is 42."


async def test_sessions_see_only_what_they_may(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(lambda text: says("hello"))
    ideas = SessionKey.parse("agent:main:ideas")
    async with serving(tmp_path, model) as scene:
        await scene.say("one")
        await scene.say("two", ideas)
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        asker = CallingSession(MAIN, owner=True)
        assert [row["key"] for row in rows(await access.sessions(asker, 10))] == [MAIN.text]
        for attempt in (
            access.history(asker, "ideas", 5),
            access.send(asker, SessionsSendArguments(session_key="ideas", message="psst")),
        ):
            with pytest.raises(UsageError, match="visibility"):
                await attempt
        child = (await scene.subagents.spawn(SpawnOrder("x"), CallingSession(ideas, owner=True))).child
        with pytest.raises(UsageError, match="not belong to this session"):
            await access.manage_subagents(asker, SubagentsArguments(action="cancel", run=child.run))
    async with serving(tmp_path, model, tools={"sessions": {"visibility": "agent"}}) as scene:
        access = HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher)
        answer = (await access.send(asker, SessionsSendArguments(session_key="ideas", message="psst"))).facts
        assert isinstance(answer, dict)
        assert answer["answer"] == "hello"
        assert any(
            "[Message 1 from session agent:main:main; not written by a person;" in text for text in scene.said(ideas)
        )


async def test_sessions_that_answer_each_other_come_to_an_end(tmp_path: Path, model: Follower) -> None:
    def answer(text: str) -> Reply:
        if text.startswith("{") or "answered each other" in text:
            return says("enough")
        other = "agent:main:b" if "b asks" in text or "Talk" in text else "agent:main:a"
        words = "a asks" if other.endswith("b") else "b asks"
        return calls(
            "tool_call", name="sessions_send", arguments={"session": other, "message": words, "timeoutSeconds": 0}
        )

    model.answer = staticmethod(answer)
    settings = {"session": {"agentToAgent": {"maxPingPongTurns": 3}}, "tools": {"sessions": {"visibility": "agent"}}}
    first, second = SessionKey.parse("agent:main:a"), SessionKey.parse("agent:main:b")
    async with serving(tmp_path, model, **settings) as scene:
        assert await scene.say("Talk to b.", first) == "enough"
        await scene.until(lambda: not scene.board.is_active(first) and not scene.board.is_active(second))
        sent = [text for key in (first, second) for text in scene.said(key) if text.startswith("[Message ")]
        assert sorted(text.split()[1] for text in sent) == ["1", "2", "3"]


async def test_without_a_gateway_a_sub_agent_is_refused_with_advice(tmp_path: Path, model: Follower) -> None:
    stage = Stage(HomePaths(tmp_path / "home"), model)
    async with stage.open() as runtime:
        with pytest.raises(UsageError, match="retinue gateway start"):
            await HomeSessionTools(runtime.sessions, runtime.dispatcher).spawn(
                CallingSession(MAIN, owner=True), SpawnArguments(task="x")
            )


FACTS = SpawnFacts(
    parent=MAIN,
    agents=(DEFAULT_AGENT, AgentId("writer")),
    allowed=(),
    children=0,
    unread=0,
    max_depth=1,
    max_children=5,
    must_name_agent=False,
    parent_confined=False,
    child_confined=False,
)
WRITER = SpawnOrder("Write.", agent=AgentId("writer"))


@pytest.mark.parametrize(
    ("order", "facts", "told"),
    [
        (SpawnOrder("Work."), FACTS, None),
        (SpawnOrder("  "), FACTS, "needs a task"),
        (SpawnOrder("x"), replace(FACTS, parent=key_for_child(MAIN, DEFAULT_AGENT, "a")), "nested deeper"),
        (SpawnOrder("x"), replace(FACTS, parent=key_for_child(MAIN, DEFAULT_AGENT, "a"), max_depth=2), None),
        (SpawnOrder("x"), replace(FACTS, children=5), "already running"),
        (SpawnOrder("x"), replace(FACTS, unread=MAX_UNREAD_RESULTS), "waiting to be read"),
        (SpawnOrder("x"), replace(FACTS, must_name_agent=True), "Say which agent"),
        (replace(WRITER, agent=AgentId("ghost")), FACTS, "There is no agent 'ghost'"),
        (WRITER, FACTS, "may not start 'writer'"),
        (WRITER, replace(FACTS, allowed=("writer",)), None),
        (WRITER, replace(FACTS, allowed=("*",)), None),
        (SpawnOrder("x"), replace(FACTS, parent_confined=True), "outside the sandbox"),
        (SpawnOrder("x"), replace(FACTS, parent_confined=True, child_confined=True), None),
        (SpawnOrder("x", sandbox="require"), FACTS, "the sandbox was required"),
    ],
)
def test_what_may_be_started(order: SpawnOrder, facts: SpawnFacts, told: str | None) -> None:
    refusal = find_refusal(order, facts)
    assert refusal is None if told is None else told in (refusal or "")


def test_a_child_of_a_child_carries_its_line() -> None:
    child = key_for_child(MAIN, DEFAULT_AGENT, "a")
    grandchild = key_for_child(child, DEFAULT_AGENT, "b")
    assert grandchild.text == "agent:main:subagent:a:subagent:b"
    assert [depth_of(key) for key in (MAIN, child, grandchild)] == [0, 1, 2]


async def test_an_unknown_or_ambiguous_run_is_told(tmp_path: Path, model: Follower) -> None:
    async with serving(tmp_path, model) as scene:
        book = SubagentStore(scene.runtime.services.database, scene.runtime.home.clock)
        now = scene.runtime.home.clock.now()
        for name in ("abc1", "abc2"):
            book.add(
                Child(RunId(name), MAIN, key_for_child(MAIN, DEFAULT_AGENT, name), "t", "", owner=True, asked_at=now)
            )
        with pytest.raises(UsageError, match="Several sub-agents match 'abc'"):
            book.get("abc")
        with pytest.raises(UsageError, match="There is no sub-agent 'x'"):
            book.get("x")
        assert book.get("abc1").run == "abc1"


async def test_a_person_looks_after_sub_agents_by_a_command(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(delegating)
    async with serving(tmp_path, model) as scene:
        assert await scene.say("/subagents") == "This conversation has no sub-agents."
        assert await scene.say("What is the answer?") == "I handed it on."
        await scene.until(lambda: "My sub-agent found 42." in scene.said())
        # The answer is in the transcript before its turn ends, and the result counts as read only then.
        child = await scene.told(scene.subagents.store.all()[0])
        assert await scene.say("/subagents") == f"{child.run[:8]}  completed  search"
        assert await scene.say(f"/subagents log {child.run[:8]}") == "completed\n\nThe answer is 42."
        assert await scene.say(f"/subagents cancel {child.run}") == "It had already ended."
        assert "There is no sub-agent" in await scene.say("/subagents cancel nobody")
        for unclear in ("/subagents cancel", "/subagents steer x", "/subagents list x", "/subagents dance"):
            assert (await scene.say(unclear)).startswith("Usage: /subagents")
