"""A provider never sees a tool call without its result."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    said,
)
from retinue.sessions.repair import NEVER_STARTED, OUTCOME_UNKNOWN, RESULT_LOST, find_unanswered, repair

IDS = st.sampled_from(["a", "b", "c", ""])
CALLS = st.builds(ToolCall, IDS, st.sampled_from(["ls", "exec", ""]), st.just({}))
HISTORIES = st.lists(
    st.one_of(
        st.sampled_from(["hello", "go on"]).map(said),
        st.builds(ToolResult, IDS, st.just("ls"), st.just((Text("done"),))),
        st.builds(
            AssistantMessage,
            st.lists(CALLS | st.sampled_from([Text(""), Text(" "), Text("well"), Thinking("hm")]), max_size=4).map(
                tuple
            ),
        ),
    ),
    max_size=12,
)


def assert_acceptable(messages: tuple[Message, ...]) -> None:
    """Each call has exactly one result directly after its message, in order; nothing else is a result."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            assert expected
            assert message.call_id == expected.pop(0)
            continue
        assert not expected
        if isinstance(message, AssistantMessage):
            expected = [call.id for call in message.calls]
            assert len(set(expected)) == len(expected)
            assert message.text.strip() or expected
            assert all(not isinstance(part, Text) or part.text.strip() for part in message.content)
    assert not expected


@given(HISTORIES, st.none() | st.frozensets(IDS))
def test_every_history_becomes_acceptable(history: list[Message], started: frozenset[str] | None) -> None:
    repaired, notes = repair(history, started)
    assert_acceptable(repaired)
    assert repair(repaired, started) == (repaired, ())
    assert bool(notes) or len(repaired) == len(history)


@given(HISTORIES)
def test_nothing_that_was_said_is_lost(history: list[Message]) -> None:
    repaired, _ = repair(history)
    users = [message for message in history if message in (said("hello"), said("go on"))]
    assert [message for message in repaired if message in users] == users
    spoken = Counter("".join(message.text.split()) for message in history if isinstance(message, AssistantMessage))
    kept = Counter("".join(message.text.split()) for message in repaired if isinstance(message, AssistantMessage))
    assert all(kept[text] == number for text, number in spoken.items() if text)


def test_a_sound_history_is_left_alone() -> None:
    history = (
        said("list"),
        AssistantMessage((Text("ok"), ToolCall("1", "ls", {}), ToolCall("2", "ls", {}))),
        ToolResult("1", "ls", (Text("a"),)),
        ToolResult("2", "ls", (Text("b"),)),
        AssistantMessage((Text("There."),)),
    )
    repaired, notes = repair(history)
    assert all(one is other for one, other in zip(repaired, history, strict=True))
    assert notes == ()


def test_a_late_result_moves_to_its_call_and_a_message_between_them_waits() -> None:
    call = AssistantMessage((ToolCall("1", "ls", {}),))
    late = ToolResult("1", "ls", (Text("a"),))
    assert repair([call, said("stop!"), late])[0] == (call, late, said("stop!"))


def test_an_id_that_is_used_again_belongs_to_the_nearest_call() -> None:
    call = AssistantMessage((ToolCall("call_0", "ls", {}),))
    first, second = (ToolResult("call_0", "ls", (Text(text),)) for text in ("a", "b"))
    assert repair([call, first, call, second])[0] == (call, first, call, second)
    repaired, notes = repair([call, call, second])
    assert [message.text for message in repaired if isinstance(message, ToolResult)] == [OUTCOME_UNKNOWN, "b"]
    assert len(notes) == 1


def test_the_made_up_result_says_what_is_known() -> None:
    history = [AssistantMessage((ToolCall("1", "exec", {}), ToolCall("2", "exec", {})))]
    results = [message for message in repair(history, started={"1"})[0] if isinstance(message, ToolResult)]
    assert [result.text for result in results] == [RESULT_LOST, NEVER_STARTED]
    assert all(result.is_error and result.text.startswith("interrupted") for result in results)
    assert repair(history)[0][1].text == OUTCOME_UNKNOWN


def test_each_change_is_named() -> None:
    history: list[Message] = [
        ToolResult("9", "ls", ()),
        AssistantMessage((Thinking("hm"),)),
        AssistantMessage((ToolCall("1", "ls", {}),)),
        ToolResult("1", "ls", (Text("a"),)),
        ToolResult("1", "ls", (Text("again"),)),
    ]
    _, notes = repair(history)
    assert len(notes) == 3
    assert "message 1 is empty" in notes[0]
    assert "call 9" in notes[1]
    assert "call 1" in notes[2]


def test_an_empty_message_of_a_person_is_left_out_and_one_with_only_context_stays() -> None:
    empty, context = UserMessage(()), UserMessage((), preface="[context]")
    assert repair([empty, context, said("hi")])[0] == (context, said("hi"))


def test_the_results_that_are_missing_can_be_had_by_themselves() -> None:
    calls = AssistantMessage((ToolCall("a", "ls", {}), ToolCall("b", "ls", {})))
    there = ToolResult("a", "ls", (Text("done"),))
    (made,) = find_unanswered([said("go"), calls, there], {"b"})
    assert (made.call_id, made.text) == ("b", RESULT_LOST)


@pytest.mark.parametrize("stop", [StopReason.ABORTED, StopReason.ERROR])
def test_an_answer_that_was_cut_off_is_not_the_end_of_a_request(stop: StopReason) -> None:
    cut_off = AssistantMessage((Text("I am wor"),), stop=stop)
    asked = said("Work.")
    assert repair([asked, cut_off])[0] == (asked,)
    assert repair([asked, cut_off, said("And?")])[0] == (asked, cut_off, said("And?"))
    called = AssistantMessage((ToolCall("a", "ls", {}),), stop=stop)
    assert repair([asked, called])[0][1] == called
