"""Calls of tools that whoever sent a message runs itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, said
from retinue.core.model import ToolSpec
from retinue.dispatch.envelope_codec import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.queue import Batch, QueueMode, QueueRules, next_batch
from retinue.runtime.open import Runtime
from retinue.sessions.entries import MessageAdded
from retinue.testing.replies import calls, calls_together, says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
WEATHER = ToolSpec("get_weather", "The weather in a city.", {"type": "object", "properties": {"city": {}}})
ASKED = Inbound("Rome?", KEY, tools=(WEATHER,))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def result(call: ToolCall, text: str = "sunny") -> ToolResult:
    return ToolResult(call.id, "", (Text(text),), label=Label.UNTRUSTED)


def roles(stage: Stage, at: int = -1) -> list[str]:
    messages: list[dict[str, Any]] = stage.server.model_requests[at].json["messages"]
    return [message["role"] for message in messages if message["role"] not in ("system", "developer")]


def forget_answer(runtime: Runtime, run: RunId) -> None:
    """Leave the inbox as a process does that dies right before it writes down what became of a message."""
    with runtime.services.database.change() as base:
        base.execute("UPDATE inbox SET state = 'claimed', claimed_into = run, result = NULL WHERE run = ?", (run,))


async def see_through(runtime: Runtime, stage: Stage, run: RunId) -> Outbound:
    outbound = await runtime.dispatcher.wait(run, 60)
    assert outbound is not None
    return outbound


async def test_a_call_ends_the_turn_and_its_result_begins_the_next(stage: Stage) -> None:
    stage.server.push(calls("get_weather", city="Rome"), says("Sunny."))
    async with stage.open() as runtime:
        first = await runtime.say(ASKED, stage.emit)
        assert (first.status, [call.name for call in first.handed]) == (TurnStatus.OK, ["get_weather"])
        second = await runtime.say(Inbound("", KEY, results=(result(first.handed[0]),)), stage.emit)
        messages = runtime.agent(KEY.agent).store.open(KEY).messages
    assert second.text == "Sunny."
    assert roles(stage) == ["user", "assistant", "tool"]
    told = messages[2]
    assert isinstance(told, ToolResult)
    assert (told.tool, told.label) == ("get_weather", Label.UNTRUSTED)


async def test_what_is_called_by_its_wrapper_is_handed_over_as_what_it_is(stage: Stage) -> None:
    stage.server.push(calls("tool_call", name="get_weather", arguments={"city": "Rome"}))
    async with stage.open() as runtime:
        outbound = await runtime.say(ASKED, stage.emit)
    assert [(call.name, dict(call.arguments)) for call in outbound.handed] == [("get_weather", {"city": "Rome"})]


async def test_words_that_come_with_the_results_are_said_after_them(stage: Stage) -> None:
    stage.server.push(calls("get_weather", city="Rome"), says("Fine."))
    async with stage.open() as runtime:
        first = await runtime.say(ASKED, stage.emit)
        await runtime.say(Inbound("and be brief", KEY, results=(result(first.handed[0]),)), stage.emit)
    assert roles(stage) == ["user", "assistant", "tool", "user"]


async def test_results_that_nobody_waits_for(stage: Stage) -> None:
    stage.server.push(says("Hello."), says("Hello."))
    async with stage.open() as runtime:
        stray = result(ToolCall("nowhere", "get_weather", {}))
        refused = await runtime.say(Inbound("", KEY, results=(stray,)), stage.emit)
        assert refused.status is TurnStatus.FAILED
        assert "waits for these results" in (refused.error or "")
        answered = await runtime.say(Inbound("hi", KEY, results=(stray,)), stage.emit)
    assert answered.text == "Hello."
    assert roles(stage) == ["user"]


async def test_a_call_that_was_handed_over_is_not_lost_with_the_process(stage: Stage) -> None:
    stage.server.push(calls_together(calls("ls", path="."), calls("get_weather", city="Rome")))
    async with stage.open() as runtime:
        first = await runtime.say(ASKED, stage.emit)
        forget_answer(runtime, first.run)
    async with stage.open() as runtime:
        again = await see_through(runtime, stage, first.run)
    assert again.handed == first.handed
    assert len(stage.server.model_requests) == 1


async def test_results_are_taken_once_though_the_process_died_after_them(stage: Stage) -> None:
    stage.server.push(calls("get_weather", city="Rome"), says("Sunny."))
    async with stage.open() as runtime:
        first = await runtime.say(ASKED, stage.emit)
        second = await runtime.say(Inbound("", KEY, results=(result(first.handed[0]),)), stage.emit)
        forget_answer(runtime, second.run)
    async with stage.open() as runtime:
        again = await see_through(runtime, stage, second.run)
        messages = runtime.agent(KEY.agent).store.open(KEY).messages
    assert again.text == "Sunny."
    assert len(stage.server.model_requests) == 2
    assert sum(isinstance(message, ToolResult) for message in messages) == 1


async def test_a_resumed_turn_still_has_the_senders_tools(stage: Stage) -> None:
    stage.server.push(calls("get_weather", city="Rome"))
    async with stage.open() as runtime:
        run = runtime.services.inbox.accept(ASKED, RunId("r1")).run
        runtime.services.inbox.claim(KEY, (run,), run)
        runtime.agent(KEY.agent).store.open(KEY).append(MessageAdded(said("Rome?"), run))
    async with stage.open() as runtime:
        outbound = await see_through(runtime, stage, run)
    assert [call.name for call in outbound.handed] == ["get_weather"]


async def test_instructions_stand_in_front_of_the_message_and_nowhere_else(stage: Stage) -> None:
    stage.server.push(says("Arr."))
    async with stage.open() as runtime:
        await runtime.say(Inbound("hi", KEY, instructions="Talk like a pirate."), stage.emit)
        message = runtime.agent(KEY.agent).store.open(KEY).messages[0]
    request = stage.server.model_requests[0].json["messages"]
    assert "Talk like a pirate." in str(request[-1]["content"])
    assert all("pirate" not in str(other["content"]) for other in request[:-1])
    assert message.text == "hi"


async def test_a_session_can_begin_with_a_history_and_only_begin(stage: Stage) -> None:
    history = (MessageAdded(said("My name is Ada.")), MessageAdded(AssistantMessage((Text("Noted."),))))
    stage.server.push(says("Ada."))
    async with stage.open() as runtime:
        store = runtime.agent(KEY.agent).store
        assert store.begin(KEY, history)
        assert not store.begin(KEY, history)
        await runtime.say(Inbound("My name?", KEY), stage.emit)
    assert roles(stage) == ["user", "assistant", "user"]


def test_what_programs_send_survives_the_inbox() -> None:
    call = ToolCall("c1", "get_weather", {"city": "Rome"})
    inbound = Inbound("hi", KEY, instructions="Be brief.", tools=(WEATHER,), results=(result(call),))
    assert decode_inbound(encode_inbound(inbound)) == inbound
    outbound = Outbound(RunId("r"), KEY, "s", TurnStatus.OK, "", handed=(call,))
    assert decode_outbound(encode_outbound(outbound)) == outbound


@pytest.mark.parametrize("mode", [QueueMode.COLLECT, QueueMode.INTERRUPT])
def test_messages_with_tools_or_other_instructions_are_not_merged(mode: QueueMode) -> None:
    def waiting(name: str, **more: Any) -> Waiting:
        return Waiting(RunId(name), Inbound(name, KEY, **more), NOW)

    rules = QueueRules(mode)
    for first, second in [
        (waiting("a"), waiting("b", tools=(WEATHER,))),
        (waiting("a", tools=(WEATHER,)), waiting("b")),
        (waiting("a", instructions="x"), waiting("b", instructions="y")),
    ]:
        batch = next_batch((first, second), rules, NOW, idle=True)
        assert isinstance(batch, Batch)
        assert len(batch.runs) == 1
    together = (waiting("a", instructions="x"), waiting("b", instructions="x"))
    batch = next_batch(together, rules, NOW, idle=True)
    assert isinstance(batch, Batch)
    assert len(batch.runs) == 2


async def test_a_message_does_not_join_a_turn_with_tools_of_another(stage: Stage) -> None:
    from retinue.runtime.turns.permissions import permissions_of

    async with stage.open() as runtime:
        parts = runtime.agent(KEY.agent)
        plain, other = Inbound("hi", KEY), Inbound("hi", KEY, instructions="Be brief.")
        assert permissions_of(parts, KEY, plain).admit(plain)
        assert not permissions_of(parts, KEY, plain).admit(ASKED)
        assert not permissions_of(parts, KEY, ASKED).admit(plain)
        assert not permissions_of(parts, KEY, plain).admit(other)
        assert permissions_of(parts, KEY, other).admit(other)
