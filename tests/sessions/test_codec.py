"""Transcript lines: strict when written, forgiving when read."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.errors import SessionError
from retinue.core.keys import SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, StopReason, Text, ToolCall, ToolResult, Usage, UserMessage, said
from retinue.core.model import ModelRef
from retinue.sessions.entries import (
    Body,
    CallStarted,
    Compacted,
    EntryId,
    Header,
    MessageAdded,
    ModelChanged,
    Noted,
    TranscriptEntry,
    Unknown,
)
from retinue.sessions.jsonl.codec import EPOCH, UnreadableLine, decode_line, encode_line
from tests.sessions.builders import BODIES, NAME, START, TEXT, TIMES


def entry(body: Body) -> TranscriptEntry:
    return TranscriptEntry(EntryId("e1"), None, START, body)


def body_of(line: dict[str, object]) -> Body:
    value = decode_line(json.dumps({"id": "e1", "parentId": None, **line}).encode())
    assert isinstance(value, TranscriptEntry)
    return value.body


@given(NAME.map(EntryId), st.none() | NAME.map(EntryId), TIMES, BODIES)
def test_an_entry_comes_back_as_it_was(name: EntryId, parent: EntryId | None, at: datetime, body: Body) -> None:
    written = TranscriptEntry(name, parent, at, body)
    line = encode_line(written)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == written


@given(
    st.builds(
        Header,
        NAME.map(SessionId),
        TIMES,
        TEXT,
        st.none()
        | st.sampled_from(["agent:main:main", "agent:work:telegram:group:5", "hook:u1"]).map(SessionKey.parse),
        st.none() | TEXT,
    )
)
def test_a_header_comes_back_as_it_was(header: Header) -> None:
    assert decode_line(encode_line(header)) == header


def test_a_hooks_header_remembers_its_agent() -> None:
    key = SessionKey.parse("hook:u1", default_agent=SessionKey.parse("agent:work:main").agent)
    read = decode_line(encode_line(Header(SessionId("s"), START, "", key)))
    assert isinstance(read, Header)
    assert read.key is not None
    assert read.key.agent == "work"


@given(st.binary(max_size=60))
def test_no_line_is_too_broken_to_be_looked_at(line: bytes) -> None:
    decode_line(line)


@given(BODIES, st.integers(0, 10**6), st.integers(0, 255))
def test_a_flipped_byte_costs_at_most_its_line(body: Body, place: int, byte: int) -> None:
    line = bytearray(encode_line(entry(body)))
    line[place % (len(line) - 1)] = byte
    decode_line(bytes(line))


def test_messages_are_written_in_the_original_shape() -> None:
    call = ToolCall("c1", "exec", {"command": "ls"})
    message = AssistantMessage((Text("Looking."), call), "openai/gpt-5", Usage(1, 2, 3, 4, 0.5), StopReason.TOOL_CALLS)
    assert json.loads(encode_line(entry(MessageAdded(message)))) == {
        "type": "message",
        "id": "e1",
        "parentId": None,
        "timestamp": "2026-02-03T10:00:00Z",
        "source": "chat",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}},
            ],
            "provider": "openai",
            "model": "gpt-5",
            "usage": {
                "input": 1,
                "output": 2,
                "cacheRead": 3,
                "cacheWrite": 4,
                "totalTokens": 10,
                "cost": {"total": 0.5},
            },
            "stopReason": "toolUse",
        },
    }


def test_our_own_entries_are_notes_to_the_original() -> None:
    line = json.loads(encode_line(entry(CallStarted("c1", "exec", "abc"))))
    assert (line["type"], line["customType"]) == ("custom", "retinue:call-started")
    assert line["data"] == {"callId": "c1", "tool": "exec", "argumentsHash": "abc", "run": None}


def test_a_transcript_of_the_original_is_understood() -> None:
    assert body_of({"type": "message", "message": {"role": "user", "content": "Hi", "timestamp": 1}}) == MessageAdded(
        said("Hi")
    )
    assert body_of({"type": "model_change", "provider": "openai", "modelId": "gpt-5"}) == ModelChanged(
        ModelRef("openai", "gpt-5")
    )
    assert body_of({"type": "compaction", "summary": "S", "firstKeptEntryId": "x", "tokensBefore": 9}) == Compacted(
        "S", EntryId("x"), 9
    )
    assert body_of({"type": "custom", "customType": "openclaw:bootstrap-context:full"}) == Noted(
        "openclaw:bootstrap-context:full"
    )


@pytest.mark.parametrize(
    "line",
    [
        {"type": "branch_summary", "fromId": "x", "summary": "S"},
        {"type": "message", "message": {"role": "bashExecution", "command": "ls"}},
        {"type": "message", "message": {"role": "user", "content": [{"type": "video"}]}},
        {"type": "message", "message": {"role": "toolResult", "content": []}},
        {"type": "message", "message": 7},
        {"type": "thinking_level_change", "thinkingLevel": "ultra"},
        {"type": "model_change", "provider": "openai"},
        {"type": "compaction", "summary": 5},
        {"type": "custom", "customType": "retinue:setting", "data": {"name": 1}},
        {"type": "custom"},
        {"type": ["what"]},
        {},
    ],
)
def test_what_is_not_known_is_kept_as_it_was(line: dict[str, object]) -> None:
    raw = {"id": "e9", "parentId": "e8", "timestamp": "2026-02-03T10:00:00.000Z", "extra": [1], **line}
    read = decode_line(json.dumps(raw).encode())
    assert isinstance(read, TranscriptEntry)
    assert (read.id, read.parent, read.body) == ("e9", "e8", Unknown(raw))
    assert json.loads(encode_line(read)) == raw


@pytest.mark.parametrize("line", [b"", b"\x00\x00", b"{", b"[1]", b"7", b'{"a": NaN}', b"{" * 100_000, b'"text"'])
def test_what_is_no_object_is_unreadable(line: bytes) -> None:
    assert isinstance(decode_line(line), UnreadableLine)


def test_bytes_that_are_no_text_cost_a_character() -> None:
    line = encode_line(entry(MessageAdded(said("caf\u00e9 au lait")))).replace("\u00e9".encode(), b"\xe9")
    read = decode_line(line)
    assert isinstance(read, TranscriptEntry)
    assert isinstance(read.body, MessageAdded)
    assert read.body.message.text == "caf\ufffd au lait"


def test_a_broken_time_does_not_hide_a_line() -> None:
    times: tuple[object, ...] = ("soon", 1e300, None, [], "9999999-01-01")
    for time in times:
        read = decode_line(json.dumps({"type": "custom", "customType": "x", "id": "1", "timestamp": time}).encode())
        assert isinstance(read, TranscriptEntry)
        assert read.timestamp == EPOCH


@pytest.mark.parametrize(
    "body",
    [
        Noted("x", {"a": float("nan")}),
        Noted("x", {"a": object()}),
        Noted("retinue:setting", {"name": "a", "value": "b"}),
        MessageAdded(AssistantMessage((ToolCall("1", "x", {"a": {1, 2}}),))),
    ],
)
def test_what_would_not_come_back_is_not_written(body: Body) -> None:
    with pytest.raises(SessionError):
        encode_line(entry(body))


def test_a_time_without_a_zone_is_not_written() -> None:
    with pytest.raises(SessionError, match="zone"):
        encode_line(TranscriptEntry(EntryId("1"), None, START.replace(tzinfo=None), Noted("x")))


def test_an_entry_needs_an_id() -> None:
    with pytest.raises(SessionError, match="id"):
        encode_line(TranscriptEntry(EntryId(""), None, START, Noted("x")))


def test_half_a_surrogate_pair_survives() -> None:
    written = entry(MessageAdded(said(chr(0xD83D))))
    assert decode_line(encode_line(written)) == written


def test_a_lost_label_never_makes_a_text_more_trusted() -> None:
    def trust_of(message: dict[str, object]) -> Label:
        body = body_of({"type": "message", "message": message})
        assert isinstance(body, MessageAdded)
        assert isinstance(body.message, UserMessage | ToolResult)
        return body.message.label

    result: dict[str, object] = {"role": "toolResult", "toolCallId": "1", "content": []}
    assert trust_of(result).is_foreign
    assert trust_of({**result, "trust": "agent"}) == Label.AGENT
    assert trust_of({"role": "user", "content": "x", "trust": "owncr"}).is_foreign
    assert trust_of({"role": "user", "content": "x"}).is_owners


def test_an_unknown_source_is_other() -> None:
    body = body_of({"type": "message", "message": {"role": "user", "content": "x"}, "source": "moon"})
    assert isinstance(body, MessageAdded)
    assert body.source is Source.OTHER
