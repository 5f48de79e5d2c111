"""Conversations for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Image, Message, Text, ToolCall, ToolResult, said
from retinue.sessions.entries import EntryId, MessageAdded, TranscriptEntry

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PHRASE = "the quick brown fox jumps over the lazy dog near a river bank while nobody watches it closely "


def words(count: int) -> str:
    """Some words, about one token each."""
    phrase = PHRASE.split()
    return " ".join(phrase[at % len(phrase)] for at in range(count))


def answers(text: str) -> AssistantMessage:
    return AssistantMessage((Text(text),))


def calls(*ids: str, tool: str = "exec", text: str = "", **arguments: object) -> AssistantMessage:
    spoken = (Text(text),) if text else ()
    return AssistantMessage((*spoken, *(ToolCall(name, tool, arguments) for name in ids)))


def gives(call: str, text: str, *, tool: str = "exec", failed: bool = False, label: Label = Label.AGENT) -> ToolResult:
    return ToolResult(call, tool, (Text(text),), is_error=failed, label=label)


def entries_of(messages: Sequence[Message], sources: Sequence[Source] | None = None) -> tuple[TranscriptEntry, ...]:
    """The messages as a transcript holds them."""
    return tuple(
        TranscriptEntry(
            EntryId(f"e{at}"),
            EntryId(f"e{at - 1}") if at else None,
            START + timedelta(seconds=at),
            MessageAdded(message, source=sources[at] if sources else Source.CHAT),
        )
        for at, message in enumerate(messages)
    )


_SIZES = st.sampled_from([0, 3, 40, 300])
_TOOLS = st.sampled_from(["exec", "read", "web_fetch"])


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A person's message, then answers with calls and their results, in any order, some with pictures or missing."""
    messages: list[Message] = [said(draw(st.sampled_from(["look", "please fix it"])) + " " + words(draw(_SIZES)))]
    for _ in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 3))
        tool = draw(_TOOLS)
        ids = [f"c{draw(st.integers(0, 10**6))}-{number}" for number in range(count)]
        messages.append(calls(*ids, tool=tool, text=words(draw(_SIZES)), path="/tmp/x"))
        for name in draw(st.permutations(ids)):
            if draw(st.integers(0, 9)) == 0:
                continue
            picture = (Image("image/png", "AAAA"),) if draw(st.integers(0, 9)) == 0 else ()
            text = words(draw(_SIZES) * 4)
            messages.append(ToolResult(name, tool, (Text(text), *picture), is_error=draw(st.booleans())))
        if draw(st.integers(0, 5)) == 0:
            messages.append(said("and one more thing"))
    return messages


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """A few turns, sometimes after an answer to nothing."""
    before: list[Message] = []
    if draw(st.booleans()):
        before = [calls("boot", tool="read"), gives("boot", words(1500), tool="read")]
    return (*before, *(message for turn in draw(st.lists(turns(), max_size=5)) for message in turn))
