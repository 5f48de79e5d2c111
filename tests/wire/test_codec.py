"""Every value of the wire is decoded as it was encoded, in every field."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core import events
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Outbound
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Image, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from retinue.wire import codec
from retinue.wire.frames import EVENTS, Connect, Event, Failure, Hello, Request, Response, TurnPayload, Wire
from retinue.wire.messages import Waited
from retinue.wire.methods import METHODS
from tests.wire.strategies import values_of

RUN = RunId("run-1")
KEY = SessionKey.parse("agent:work:telegram:group:!room:example.org")
CALL = ToolCall("call-1", "exec", {"command": "ls", "deep": {"list": [1, None, "ü"]}}, "signature")
USAGE = Usage(1, 2, 3, 4, 0.5)
REQUEST = ApprovalRequest(
    "abcd", "exec", "Run it?", "ls \u202e-la", AgentId("work"), KEY, (("ls", "*"),), "hash", ("it lists",)
)
ANSWER = AssistantMessage(
    (Thinking("hm", "sig", redacted=True), Text("Hello"), CALL), "test/model", USAGE, StopReason.TOOL_CALLS, "oops"
)
RESULT = ToolResult("call-1", "exec", (Text("out"), Image("image/png", "QUJD")), is_error=True, label=Label.UNTRUSTED)
CALL_FRAME = {"type": "call", "id": "call-1", "name": "exec", "arguments": CALL.arguments, "signature": "signature"}
USAGE_FRAME = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": 0.5}
REQUEST_FRAME = {
    "id": "abcd",
    "tool": "exec",
    "title": "Run it?",
    "detail": "ls \u202e-la",
    "agent": "work",
    "sessionKey": KEY.text,
    "remember": [["ls", "*"]],
    "binding": "hash",
    "explanation": ["it lists"],
}

FRAMES: tuple[tuple[events.TurnEvent, dict[str, Any]], ...] = (
    (
        events.Accepted(RUN, KEY, datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)),
        {
            "type": "accepted",
            "runId": "run-1",
            "sessionKey": KEY.text,
            "agent": "work",
            "acceptedAt": "2026-01-02T03:04:05.678901Z",
        },
    ),
    (
        events.TurnStarted(RUN, KEY, "test/model"),
        {"type": "turn_started", "runId": "run-1", "sessionKey": KEY.text, "agent": "work", "model": "test/model"},
    ),
    (events.TextDelta("words \u0000 and \U0001f600"), {"type": "spoken", "text": "words \u0000 and \U0001f600"}),
    (events.ReasoningDelta("reasons"), {"type": "thought", "text": "reasons"}),
    (
        events.MessageFinished(ANSWER),
        {
            "type": "answered",
            "message": {
                "content": [
                    {"type": "thinking", "text": "hm", "signature": "sig", "redacted": True},
                    {"type": "text", "text": "Hello"},
                    CALL_FRAME,
                ],
                "model": "test/model",
                "usage": USAGE_FRAME,
                "stop": "tool_calls",
                "error": "oops",
            },
        },
    ),
    (events.ToolStarted(CALL), {"type": "tool_started", "call": CALL_FRAME}),
    (events.ToolProgress("call-1", "half way"), {"type": "tool_progress", "callId": "call-1", "text": "half way"}),
    (
        events.ToolFinished(CALL, RESULT, 1.25),
        {
            "type": "tool_finished",
            "call": CALL_FRAME,
            "result": {
                "callId": "call-1",
                "tool": "exec",
                "content": [
                    {"type": "text", "text": "out"},
                    {"type": "image", "mediaType": "image/png", "data": "QUJD"},
                ],
                "isError": True,
                "label": {"origin": "untrusted", "private": False},
            },
            "seconds": 1.25,
        },
    ),
    (events.ApprovalAsked(REQUEST), {"type": "approval_asked", "request": REQUEST_FRAME}),
    (
        events.ApprovalGiven(REQUEST, ApprovalDecision(Verdict.DENY, "no", "me")),
        {
            "type": "approval_given",
            "request": REQUEST_FRAME,
            "decision": {"verdict": "deny", "because": "no", "by": "me"},
        },
    ),
    (events.Notice("a notice"), {"type": "notice", "text": "a notice"}),
    (
        events.TurnFinished(RUN, events.TurnStatus.OK, "", USAGE, "m"),
        {
            "type": "turn_finished",
            "runId": "run-1",
            "status": "ok",
            "text": "",
            "usage": USAGE_FRAME,
            "model": "m",
            "handed": [],
            "media": [],
        },
    ),
)

SENT: list[type[Wire]] = [Request, Response, Event, Connect, Hello, Failure]
SENT += [kind for method in METHODS.values() for kind in (method.params, method.result)]
SENT += [payload for payload, _ in EVENTS.values()]
KINDS = {kind.__name__: kind for kind in SENT}


@pytest.mark.parametrize(("event", "frame"), FRAMES, ids=lambda each: type(each).__name__)
def test_an_event_has_its_published_form(event: events.TurnEvent, frame: dict[str, Any]) -> None:
    sent = json.loads(codec.encode(TurnPayload((RunId("run-0"), RUN), event)))
    assert sent == {"runs": ["run-0", "run-1"], "event": frame}


def test_no_event_is_left_out() -> None:
    assert {type(event) for event, _ in FRAMES} == set(get_args(events.TurnEvent))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_field_survives(kind: type[Wire], data: st.DataObject) -> None:
    value = data.draw(values_of(kind))
    text = codec.encode(value)
    assert json.loads(text) == json.loads(json.dumps(codec.to_plain(value)))
    read = codec.convert(codec.read_json(text), kind)
    assert msgspec.to_builtins(read) == msgspec.to_builtins(value)
    assert read == value


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_sent_as_zero_or_null(cost: float) -> None:
    call = ToolCall("1", "exec", {"number": cost, "deep": [cost]})
    sent = Outbound(RUN, KEY, "s", events.TurnStatus.OK, "", usage=Usage(cost=cost), handed=(call,))
    read = codec.decode(codec.encode(Waited(sent)), Waited).outbound
    assert read is not None
    assert read.usage.cost == 0
    assert read.handed[0].arguments == {"number": None, "deep": [None]}


def test_a_key_that_is_not_a_session_is_a_validation_error() -> None:
    event = {"type": "turn_started", "runId": "r", "sessionKey": "a:b:c", "agent": "main", "model": "m"}
    with pytest.raises(msgspec.ValidationError, match="session key"):
        codec.convert({"runs": [], "event": event}, TurnPayload)
