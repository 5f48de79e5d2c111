"""The client: the interface of an assistant over a WebSocket, with disconnects."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.client import ClientError, GatewayAddress, open_client
from retinue.core.api import Assistant
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound
from retinue.core.events import Accepted, ApprovalAsked, TextDelta, ToolFinished, TurnEvent, TurnFinished, TurnStatus
from retinue.core.keys import SessionKey
from retinue.gateway.connection import MAX_STREAMS
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.testing.replies import Fault, Reply, calls, says
from retinue.wire import system
from retinue.wire.frames import Nothing
from tests.gateway.conftest import PATIENCE, Hall

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")


class Notes:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.events: list[TurnEvent] = []

    async def show(self, event: TurnEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[TurnEvent]) -> list[TurnEvent]:
        return [event for event in self.events if isinstance(event, kind)]


async def talk(assistant: Assistant) -> None:
    """What every assistant can do."""
    notes = Notes()
    key = await assistant.session_key("ideas", None)
    assert key.text == "agent:main:ideas"
    outbound = await assistant.say(Inbound("hi", key), notes.show, None)
    assert (outbound.status, outbound.text, outbound.session) == (TurnStatus.OK, "Hello.", key)
    assert isinstance(notes.events[0], Accepted)
    assert isinstance(notes.events[-1], TurnFinished)
    assert "".join(event.text for event in notes.events if isinstance(event, TextDelta)) == "Hello."
    assert [item.outbound.run for item in await assistant.missed(key)] == [outbound.run]
    await assistant.confirm(outbound.run)
    assert list(await assistant.missed(key)) == []
    greeting = await assistant.greet(key)
    assert (greeting.model, greeting.messages) == ("test/test-model", 2)
    assert not (await assistant.display(key)).thinking
    assert "status" in await assistant.commands(key)
    assert not await assistant.stop(key)


async def test_a_client_is_an_assistant(hall: Hall) -> None:
    async with hall.client() as client:
        await talk(client)


async def test_a_runtime_is_an_assistant(quiet_hall: Hall) -> None:
    foundation = load_home(quiet_hall.home, environment=quiet_hall.environment)
    async with open_runtime(foundation) as runtime:
        await talk(runtime)


async def test_a_client_comes_back_and_misses_nothing(quiet_hall: Hall) -> None:
    hall = quiet_hall
    hall.model.push(says("first"), says("second"))
    notes = Notes()
    async with hall.serving(), hall.client() as client:
        await client.say(Inbound("one", KEY), notes.show)
        hall.model.push(Reply(text="Slowly ", fault=Fault.HANG))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.say, Inbound("two", KEY), notes.show)
            tasks.start_soon(client.say, Inbound("three", KEY), notes.show)
            with anyio.fail_after(PATIENCE):
                while not any(isinstance(event, TextDelta) and "Slowly" in event.text for event in notes.events):
                    await anyio.sleep(0.01)
                assert client.hello is not None
                before = client.hello.connection
                await client.drop()
                while client.hello.connection == before:
                    await anyio.sleep(0.01)
                assert await client.stop(KEY)
    finished = [event for event in notes.events if isinstance(event, TurnFinished)]
    assert [event.status for event in finished][:1] == [TurnStatus.OK]
    assert len({event.run for event in finished}) == len(finished) == 3


@pytest.mark.slow
async def test_a_question_reaches_the_person_at_the_client(hall: Hall) -> None:
    hall.model.push(calls("exec", command="touch asked.txt"), says("As you said."))
    asked: list[ApprovalRequest] = []

    async def yes(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision(Verdict.ALLOW_ONCE, "yes", "me")

    notes = Notes()
    async with hall.client(asks=True) as client:
        outbound = await client.say(Inbound("make a file", KEY), notes.show, yes)
    assert outbound.text == "As you said."
    assert [request.detail for request in asked] == [event.request.detail for event in notes.of(ApprovalAsked)]  # type: ignore[union-attr]
    assert len(asked) == 1
    assert (hall.home.workspace / "asked.txt").exists()


async def test_without_anybody_to_ask_the_answer_is_no(hall: Hall) -> None:
    hall.model.push(calls("exec", command="touch asked.txt"), says("I may not."))
    notes = Notes()
    async with hall.client() as client:
        await client.say(Inbound("make a file", KEY), notes.show)
    (finished,) = notes.of(ToolFinished)
    assert isinstance(finished, ToolFinished)
    assert finished.result.is_error
    assert not (hall.home.workspace / "asked.txt").exists()


@pytest.mark.slow
async def test_a_client_that_talks_in_many_sessions_follows_only_as_many_as_it_may(hall: Hall) -> None:
    async with hall.client() as client:
        for number in range(MAX_STREAMS + 5):
            async with client.following(SessionKey.parse(f"agent:main:room-{number}")):
                pass
        notes = Notes()
        assert (await client.say(Inbound("hi", KEY), notes.show)).text == "Hello."
        assert notes.of(TurnFinished)


async def test_a_session_that_could_not_be_followed_is_followed_the_next_time(hall: Hall) -> None:
    ghost = SessionKey.parse("agent:ghost:main")
    async with hall.client() as client:
        for _ in range(2):
            with pytest.raises(ClientError, match="no agent 'ghost'"):
                async with client.following(ghost):
                    raise AssertionError("it is not followed")


async def test_a_refusal_is_told_and_not_tried_for_ever(hall: Hall) -> None:
    async with open_client(GatewayAddress(hall.url, lambda: "wrong")) as client:
        with pytest.raises(ClientError, match="not valid"):
            await client.call(system.HEALTH, Nothing())


async def test_a_gateway_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with open_client(GatewayAddress("http://127.0.0.1:9", lambda: "x")) as client:
        with pytest.raises(Exception, match="cannot be reached"):
            await client.call(system.HEALTH, Nothing(), patience=0.3)
