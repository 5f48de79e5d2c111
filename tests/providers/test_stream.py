"""From pieces to a message."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import INVALID_ARGUMENTS, StopReason, Text, Thinking, said
from retinue.core.model import Failure, ModelFailed, ModelFinished, ModelRef, ModelRequest, ModelTextDelta
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.providers.stream import Delta, Draft, deliver, parse_arguments, to_body, whole_number
from tests.providers.support import collect, failed

REQUEST = ModelRequest(ModelRef("test", "model"), "", "", (said("hi"),))


def test_blocks_keep_their_order_and_join_within_themselves() -> None:
    draft = Draft(REQUEST)
    draft.think("let me ", 0)
    draft.think("see", 0)
    draft.sign("sig", 0)
    draft.say("Two ", 1)
    draft.say("words", 1)
    draft.redact("blob")
    draft.stop = StopReason.END
    last = draft.ending()
    assert isinstance(last, ModelFinished)
    assert last.message.content == (
        Thinking("let me see", "sig"),
        Text("Two words"),
        Thinking("", "blob", redacted=True),
    )


def test_a_character_in_two_halves_becomes_whole() -> None:
    draft = Draft(REQUEST)
    first = draft.say("wave \ud83d")
    second = draft.say("\udc4b!")
    assert first == ModelTextDelta("wave ")
    assert second == ModelTextDelta("👋!")
    assert draft.message().text == "wave 👋!"


def test_half_a_character_never_gets_out() -> None:
    draft = Draft(REQUEST)
    draft.say("a\udc4bb")
    draft.message().text.encode()
    assert draft.message().text == "a\ufffdb"


def test_calls_that_all_have_the_number_zero_are_told_apart_by_their_ids() -> None:
    draft = Draft(REQUEST)
    draft.call(0, call_id="a", name="exec", arguments='{"command":')
    draft.call(0, arguments='"ls"}')
    draft.call(0, call_id="b", name="read", arguments='{"path":"x"}')
    assert [(call.id, dict(call.arguments)) for call in draft.message().calls] == [
        ("a", {"command": "ls"}),
        ("b", {"path": "x"}),
    ]


def test_a_call_without_an_id_gets_one() -> None:
    ids = iter(["one", "two"])
    draft = Draft(REQUEST, new_id=lambda: next(ids))
    draft.call(0, name="a")
    draft.call(1, name="b")
    assert [call.id for call in draft.message().calls] == ["call_one", "call_two"]


@given(st.text())
def test_any_text_becomes_arguments_that_can_be_written_down(text: str) -> None:
    arguments = parse_arguments(text)
    json.dumps(arguments, ensure_ascii=False).encode()
    if INVALID_ARGUMENTS not in arguments and text.strip():
        assert json.loads(text) == arguments


def test_calls_that_share_an_id_are_told_apart() -> None:
    draft = Draft(REQUEST)
    for key, call_id in enumerate(["q", "q_2", "q", "q"]):
        draft.call(key, call_id=call_id, name="read")
        draft.call(key, call_id=call_id, name="read", arguments="{}")
    assert [call.id for call in draft.message().calls] == ["q", "q_2", "q_3", "q_4"]


@pytest.mark.parametrize("stop", [StopReason.END, StopReason.TOOL_CALLS])
def test_to_stop_for_calls_that_are_not_there_is_to_say_nothing(stop: StopReason) -> None:
    draft = Draft(REQUEST)
    draft.call(0, call_id="a", arguments="{}")
    draft.stop = stop
    last = draft.ending()
    assert isinstance(last, ModelFailed)
    assert last.reason is Failure.EMPTY


@pytest.mark.parametrize(
    ("value", "number"),
    [(12, 12), (12.0, 12), (-3, 0), (True, 0), ("12", 0), (None, 0), (10**30, 0), (float("inf"), 0), (float("nan"), 0)],
)
def test_a_count_beyond_reason_is_none(value: object, number: int) -> None:
    assert whole_number(value) == number


@pytest.mark.parametrize("text", ['{"n": 1e999}', '{"n": [-1e999]}', '{"n": NaN}', '{"n": ' + "9" * 5_000 + "}"])
def test_numbers_that_nobody_could_write_down_are_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {INVALID_ARGUMENTS: text}


def test_half_a_character_in_a_conversation_does_not_end_it() -> None:
    broken = {"model": "m", "messages": [{"content": "a\ud800b é"}], "temperature": 0.7}
    whole = {"model": "m", "messages": [{"content": "a\ufffdb é"}], "temperature": 0.7}
    assert to_body(broken) == to_body(whole)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": "\\ud800"}', "null", '"text"'])
def test_odd_arguments_never_raise(text: str) -> None:
    json.dumps(parse_arguments(text), ensure_ascii=False).encode()


@pytest.mark.anyio
async def test_the_total_time_is_limited_even_while_pieces_come() -> None:
    async def drip(draft: Draft) -> AsyncGenerator[Delta, None]:
        while True:
            await anyio.sleep(0.01)
            yield ModelTextDelta("x")

    failure = await failed(deliver(drip, REQUEST, Timeouts(idle=5.0, total=0.2)))
    assert failure.reason is Failure.TIMEOUT
    assert failure.detail == "the answer took more than 0.2 seconds"


@pytest.mark.anyio
async def test_silence_is_told_apart_from_an_answer_without_end() -> None:
    async def silence(draft: Draft) -> AsyncGenerator[Delta, None]:
        await anyio.sleep_forever()
        yield ModelTextDelta("x")

    failure = await failed(deliver(silence, REQUEST, Timeouts(idle=0.05, total=60.0)))
    assert failure.detail == "no data arrived for 0.05 seconds"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CallFailed(Failure.BILLING, "no money"), Failure.BILLING),
        (KeyError("choices"), Failure.SERVER),
        (OSError("network is down"), Failure.CONNECTION),
        (RecursionError(), Failure.SERVER),
    ],
)
async def test_whatever_a_source_raises_is_the_last_event(error: Exception, reason: Failure) -> None:
    async def source(draft: Draft) -> AsyncGenerator[Delta, None]:
        if piece := draft.say("so far"):
            yield piece
        raise error

    events = await collect(deliver(source, REQUEST, Timeouts()))
    last = events[-1]
    assert events[0] == ModelTextDelta("so far")
    assert isinstance(last, ModelFailed)
    assert last.reason is reason
    assert last.partial is not None
    assert last.partial.text == "so far"
