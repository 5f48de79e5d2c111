"""A clock that ticks, ids that count, and values to put into transcripts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.keys import AgentId, RunId, SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    said,
)
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import (
    CallStarted,
    Compacted,
    EntryId,
    Header,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
)
from retinue.sessions.transcript import EntryStamps, Transcript

MAIN = SessionKey.main(AgentId("main"))
START = datetime(2026, 2, 3, 10, 0, tzinfo=UTC)


class TickingClock:
    """Every look at it is a second later."""

    def __init__(self, start: datetime = START) -> None:
        self.at = start

    def now(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


def counting(prefix: str) -> Iterator[str]:
    return (f"{prefix}{number}" for number in count(1))


def stamps(prefix: str = "e", *, durable: bool = False) -> EntryStamps:
    return EntryStamps(TickingClock(), counting(prefix).__next__, durable)


def header(name: str = "s1") -> Header:
    return Header(SessionId(name), START, "/home/ada", MAIN)


def start(folder: Path, name: str = "s1", prefix: str = "e") -> Transcript:
    return Transcript.create(folder / f"{name}.jsonl", header(name), (), stamps(prefix))


def user(text: str, source: Source = Source.CHAT) -> MessageAdded:
    return MessageAdded(said(text), RunId("r1"), source)


def answer(text: str, *calls: ToolCall, usage: Usage | None = None, model: str = "test/small") -> MessageAdded:
    parts = (Text(text),) if text else ()
    stop = StopReason.TOOL_CALLS if calls else StopReason.END
    return MessageAdded(AssistantMessage((*parts, *calls), model, usage or Usage(), stop), RunId("r1"))


def result(call_id: str, text: str = "done") -> MessageAdded:
    return MessageAdded(ToolResult(call_id, "ls", (Text(text),)), RunId("r1"))


def texts(transcript: Transcript) -> list[str]:
    return [message.text for message in transcript.messages]


TEXT = st.text(st.characters(), max_size=20)
NAME = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
COUNT = st.integers(0, 10**9)
PLAIN: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXT, PLAIN, max_size=3)
PARTS = st.builds(Text, TEXT) | st.builds(Image, NAME, NAME)
SPOKEN = (
    st.builds(Text, TEXT)
    | st.builds(Thinking, TEXT, st.none() | TEXT, st.booleans())
    | st.builds(ToolCall, NAME, NAME, OBJECTS, st.none() | TEXT)
)
LABELS = st.builds(
    Label, st.sampled_from(["owner", "agent", "contact:http:ada", "guest:http:eve", "untrusted"]), st.booleans()
)
USAGES = st.builds(Usage, COUNT, COUNT, COUNT, COUNT, st.floats(0, 10**6))
MODELS = st.sampled_from(["", "small", "openai/gpt", "openrouter/a/b", "/x", "x/"])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, st.lists(PARTS, max_size=3).map(tuple), st.none() | TEXT, TEXT, LABELS),
    st.builds(
        AssistantMessage,
        st.lists(SPOKEN, max_size=3).map(tuple),
        MODELS,
        USAGES,
        st.sampled_from(StopReason),
        st.none() | TEXT,
    ),
    st.builds(ToolResult, NAME, NAME, st.lists(PARTS, max_size=2).map(tuple), st.booleans(), LABELS),
)
RUNS = st.none() | NAME.map(RunId)
BODIES = st.one_of(
    st.builds(MessageAdded, MESSAGES, RUNS, st.sampled_from(Source)),
    st.builds(ModelChanged, st.none() | st.builds(ModelRef, NAME, NAME)),
    st.builds(ThinkingChanged, st.none() | st.sampled_from(ReasoningEffort)),
    st.builds(SettingChanged, NAME, st.none() | TEXT),
    st.builds(Compacted, TEXT, st.none() | NAME.map(EntryId), COUNT, OBJECTS, LABELS),
    st.builds(Noted, NAME, OBJECTS),
    st.builds(CallStarted, NAME, NAME, NAME, RUNS),
    st.builds(Interrupted, TEXT, st.lists(NAME, max_size=2).map(tuple), RUNS),
)
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))  # noqa: DTZ001
