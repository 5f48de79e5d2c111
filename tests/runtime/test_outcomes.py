"""Every message has its own outcome: its own answer, or the answer of the turn that it joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.core.envelope import Inbound, Origin, Outbound, PeerKind
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.dispatch.queue import QueueMode
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, calls_together, says
from tests.runtime.conftest import Stage
from tests.runtime.delegation import last_words

pytestmark = pytest.mark.anyio

KEY = SessionKey.main(DEFAULT_AGENT)
PATIENCE = 30.0


class Echo(ModelServer):
    """A model that answers with the message, after `gate`; a message with "look" calls a tool first."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.asked: list[str] = []

    async def reply_to(self, request: Received) -> Reply:
        text = last_words(request)
        self.asked.append(text)
        await self.gate.wait()
        if "look" in text:
            return calls_together(says("Looking."), calls("read", path="USER.md"))
        return says(f"answer to {text.splitlines()[-1]}")

    async def wait_for_requests(self, count: int) -> None:
        with anyio.fail_after(PATIENCE):
            while len(self.asked) < count:
                await anyio.sleep(0.01)


async def say_during_a_turn(
    path: Path, mode: str, first: Inbound, *later: Inbound, **config: Any
) -> tuple[list[Outbound], Echo]:
    """Send messages while the first one is being answered; return the outcome of each."""
    async with Echo() as server:
        queue = {"messages": {"queue": {"mode": mode, "debounceMs": 0}}}
        stage = Stage(HomePaths(path / "home"), server, config={**queue, **config})
        async with stage.open() as runtime, runtime.dispatcher.serving(_publish_nothing, None):
            runs = [(await runtime.dispatcher.submit(first)).run]
            await server.wait_for_requests(1)
            runs += [(await runtime.dispatcher.submit(each)).run for each in later]
            server.gate.set()
            found = [await runtime.dispatcher.wait(run, PATIENCE) for run in runs]
    assert all(outcome is not None for outcome in found)
    return [outcome for outcome in found if outcome is not None], server


def _publish_nothing(*_: object) -> None:
    """Nobody watches."""


@pytest.mark.parametrize("mode", [QueueMode.STEER, QueueMode.FOLLOWUP])
async def test_messages_during_a_model_call_get_their_own_answers(tmp_path: Path, mode: str) -> None:
    later = [Inbound(f"message {number}", KEY) for number in range(5)]
    outcomes, _ = await say_during_a_turn(tmp_path, mode, Inbound("first", KEY), *later)
    assert [outcome.text for outcome in outcomes] == ["answer to first", *(f"answer to message {n}" for n in range(5))]
    assert {outcome.answered_with for outcome in outcomes} == {None}


async def test_a_message_that_joins_a_turn_names_the_run_that_answered_it(tmp_path: Path) -> None:
    outcomes, server = await say_during_a_turn(tmp_path, "steer", Inbound("look at it", KEY), Inbound("and this", KEY))
    assert len(server.asked) == 2
    assert [outcome.text for outcome in outcomes] == ["answer to and this"] * 2
    assert [outcome.answered_with for outcome in outcomes] == [None, outcomes[0].run]
    assert outcomes[0].preceding == ("Looking.",)


async def test_messages_that_are_collected_name_the_run_that_answered_them(tmp_path: Path) -> None:
    later = [Inbound(f"message {number}", KEY) for number in range(3)]
    outcomes, server = await say_during_a_turn(tmp_path, "collect", Inbound("first", KEY), *later)
    assert len(server.asked) == 2
    assert outcomes[0].text == "answer to first"
    assert [outcome.answered_with for outcome in outcomes] == [None, outcomes[3].run, outcomes[3].run, None]
    assert len({outcome.text for outcome in outcomes[1:]}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(QueueMode))
async def test_a_message_whose_sender_waits_for_its_own_answer_has_its_own_turn(tmp_path: Path, mode: str) -> None:
    first = Inbound("look at it" if mode != "interrupt" else "first", KEY, own_turn=True)
    later = [Inbound(f"message {number}", KEY, own_turn=True) for number in range(30)]  # more than the queue's cap
    outcomes, _ = await say_during_a_turn(tmp_path, mode, first, *later)
    assert [outcome.text for outcome in outcomes[1:]] == [f"answer to message {number}" for number in range(30)]
    assert {outcome.answered_with for outcome in outcomes} == {None}


async def test_a_message_of_another_chat_does_not_join_the_turn(tmp_path: Path) -> None:
    def chat(peer: str) -> Origin:
        return Origin("telegram", "default", PeerKind.DIRECT, peer)

    first, other = Inbound("look at it", KEY, origin=chat("1")), Inbound("and this", KEY, origin=chat("2"))
    outcomes, _ = await say_during_a_turn(tmp_path, "steer", first, other)
    assert [outcome.answered_with for outcome in outcomes] == [None, None]


@pytest.mark.parametrize("text", ["hello", "look at it"])
async def test_a_message_that_was_answered_before_a_power_failure_is_not_answered_again(
    tmp_path: Path, text: str
) -> None:
    async with Echo() as server:
        server.gate.set()
        stage = Stage(HomePaths(tmp_path / "home"), server)
        async with stage.open() as runtime:
            first = await runtime.say(Inbound(text, KEY))
            requests = len(server.asked)
            with runtime.services.database.change() as base:  # as if the last transactions had been lost
                base.execute("UPDATE inbox SET state = 'waiting', result = NULL, claimed_into = NULL")
            again = await runtime.dispatcher.wait(RunId(first.run), PATIENCE)
            assert again is not None
            assert again.text == first.text
            assert len(server.asked) == requests
