"""Every event of a turn comes out of the wire as it went in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import get_args

import pytest

from retinue.core import events
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import CallSummary, Outbound
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import AssistantMessage, Image, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from retinue.core.trust import Trust
from retinue.wire.events import TurnPayload, decode_turn, encode_event
from retinue.wire.values import WireOutbound

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
RESULT = ToolResult("call-1", "exec", (Text("out"), Image("image/png", "QUJD")), is_error=True, trust=Trust.UNTRUSTED)

EVENTS: tuple[events.TurnEvent, ...] = (
    events.Accepted(RUN, KEY, datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)),
    events.TurnStarted(RUN, KEY, "test/model"),
    events.TextDelta("words \u0000 and \U0001f600"),
    events.ReasoningDelta("reasons"),
    events.MessageFinished(ANSWER),
    events.ToolStarted(CALL),
    events.ToolProgress("call-1", "half way"),
    events.ToolFinished(CALL, RESULT, 1.25),
    events.ApprovalAsked(REQUEST),
    events.ApprovalGiven(REQUEST, ApprovalDecision(Verdict.DENY, "no", "me")),
    events.Notice("a notice"),
    events.TurnFinished(RUN, events.TurnStatus.FAILED, "text", USAGE, "test/model", "why"),
    events.TurnFinished(RUN, events.TurnStatus.OK, "", Usage(), ""),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_wire(event: events.TurnEvent) -> None:
    sent = TurnPayload(runs=["run-0", RUN], event=encode_event(event)).model_dump_json(by_alias=True, exclude_none=True)
    assert decode_turn(json.loads(sent)) == ((RunId("run-0"), RUN), event)


def test_no_event_is_left_out() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(events.TurnEvent))


def test_a_result_survives_the_wire() -> None:
    outbound = Outbound(
        RUN,
        KEY,
        "session-1",
        events.TurnStatus.ABORTED,
        "text",
        "test/model",
        USAGE,
        (CallSummary("exec", {"command": "ls"}, is_error=True),),
        reply_to="m1",
        to_current=True,
        media=("a.png",),
        voice=True,
        silent=True,
        error="why",
    )
    assert (
        WireOutbound.model_validate_json(WireOutbound.of(outbound).model_dump_json(by_alias=True)).value() == outbound
    )
