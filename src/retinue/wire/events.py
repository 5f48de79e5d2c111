"""The events of a turn as they are sent, one to one with `core.events`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field

from retinue.core import events as core
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.model import Failure
from retinue.wire.frames import Wire
from retinue.wire.values import WireAnswer, WireApproval, WireCall, WireDecision, WireResult, WireUsage


class AcceptedEvent(Wire):
    """A message is kept for good."""

    type: Literal["accepted"] = "accepted"
    run_id: str
    session_key: str
    agent: str
    accepted_at: datetime


class TurnStartedEvent(Wire):
    """A turn begins."""

    type: Literal["turn_started"] = "turn_started"
    run_id: str
    session_key: str
    agent: str
    model: str


class SpokenEvent(Wire):
    """More words of the answer."""

    type: Literal["spoken"] = "spoken"
    text: str


class ThoughtEvent(Wire):
    """More of the model's reasoning."""

    type: Literal["thought"] = "thought"
    text: str


class AnsweredEvent(Wire):
    """The model finished one message of the turn."""

    type: Literal["answered"] = "answered"
    message: WireAnswer


class ToolStartedEvent(Wire):
    """A tool call is about to take effect."""

    type: Literal["tool_started"] = "tool_started"
    call: WireCall


class ToolProgressEvent(Wire):
    """A running tool has something to show."""

    type: Literal["tool_progress"] = "tool_progress"
    call_id: str
    text: str


class ToolFinishedEvent(Wire):
    """A tool call ended."""

    type: Literal["tool_finished"] = "tool_finished"
    call: WireCall
    result: WireResult
    seconds: float


class ApprovalAskedEvent(Wire):
    """A person is being asked; `approvals.resolve` answers."""

    type: Literal["approval_asked"] = "approval_asked"
    request: WireApproval


class ApprovalGivenEvent(Wire):
    """Somebody decided, or nobody did in time."""

    type: Literal["approval_given"] = "approval_given"
    request: WireApproval
    decision: WireDecision


class NoticeEvent(Wire):
    """Something the person should know."""

    type: Literal["notice"] = "notice"
    text: str


class TurnFinishedEvent(Wire):
    """The turn ended; `text` is the whole visible answer, `handed` the calls that the sender runs itself."""

    type: Literal["turn_finished"] = "turn_finished"
    run_id: str
    status: core.TurnStatus
    text: str
    usage: WireUsage
    model: str
    error: str | None = None
    failure: Failure | None = None
    handed: list[WireCall] = Field(default_factory=list)


WireEvent = Annotated[
    AcceptedEvent
    | TurnStartedEvent
    | SpokenEvent
    | ThoughtEvent
    | AnsweredEvent
    | ToolStartedEvent
    | ToolProgressEvent
    | ToolFinishedEvent
    | ApprovalAskedEvent
    | ApprovalGivenEvent
    | NoticeEvent
    | TurnFinishedEvent,
    Field(discriminator="type"),
]


class TurnPayload(Wire):
    """The payload of a `turn` event: `runs` are the messages that the turn answers, the last gives it its name."""

    runs: list[str]
    event: WireEvent


class SessionsChanged(Wire):
    """The payload of `sessions.changed`: something about a session that lists show is different now."""

    session_key: str
    reason: str


class ConfigChanged(Wire):
    """The payload of `config.changed`: a new configuration holds, or could not be used."""

    applied: bool
    hash: str
    needs_restart: list[str]
    problems: list[str]


class ApprovalsChanged(Wire):
    """The payload of `approvals.changed`: a question was asked or has its answer; `approvals.list` has those open."""

    id: str
    pending: bool
    session_key: str


class PairingRequested(Wire):
    """The payload of `pairing.requested`: what a device shows while it waits for the owner."""

    id: str
    code: str
    expires_at: datetime


class DevicesChanged(Wire):
    """The payload of `devices.changed`: `waiting` devices ask to be let in; `devices.list` has them."""

    waiting: int


class Shutdown(Wire):
    """The payload of `shutdown`: the gateway ends; what is not answered now is answered after its next start."""

    reason: str


EVENTS: dict[str, tuple[type[Wire], str]] = {
    "turn": (TurnPayload, "Something happened in a turn of the stream's session."),
    "sessions.changed": (SessionsChanged, "A session began, ended, or has more to show. Stream `gateway`."),
    "config.changed": (ConfigChanged, "The configuration was read again. Stream `gateway`."),
    "approvals.changed": (ApprovalsChanged, "A question was asked or answered. Stream `gateway`."),
    "pairing.requested": (PairingRequested, "Before the hello, to a device that asks to be let in: the code to show."),
    "devices.changed": (DevicesChanged, "A device asks to be let in, waits no more, or was revoked. Stream `gateway`."),
    "shutdown": (Shutdown, "The gateway ends or restarts. Stream `gateway`."),
}
"""Every event: what it carries and when it is sent."""


def encode_event(event: core.TurnEvent) -> WireEvent:
    """An event as it is sent."""
    match event:
        case core.Accepted(run, session, accepted_at):
            return AcceptedEvent(run_id=run, session_key=session.text, agent=session.agent, accepted_at=accepted_at)
        case core.TurnStarted(run, session, model):
            return TurnStartedEvent(run_id=run, session_key=session.text, agent=session.agent, model=model)
        case core.TextDelta(text):
            return SpokenEvent(text=text)
        case core.ReasoningDelta(text):
            return ThoughtEvent(text=text)
        case core.MessageFinished(message):
            return AnsweredEvent(message=WireAnswer.of(message))
        case core.ToolStarted(call):
            return ToolStartedEvent(call=WireCall.of(call))
        case core.ToolProgress(call_id, text):
            return ToolProgressEvent(call_id=call_id, text=text)
        case core.ToolFinished(call, result, seconds):
            return ToolFinishedEvent(call=WireCall.of(call), result=WireResult.of(result), seconds=seconds)
        case core.ApprovalAsked(request):
            return ApprovalAskedEvent(request=WireApproval.of(request))
        case core.ApprovalGiven(request, decision):
            return ApprovalGivenEvent(request=WireApproval.of(request), decision=WireDecision.of(decision))
        case core.Notice(text):
            return NoticeEvent(text=text)
        case core.TurnFinished():
            return TurnFinishedEvent(
                run_id=event.run,
                status=event.status,
                text=event.text,
                usage=WireUsage.of(event.usage),
                model=event.model,
                error=event.error,
                failure=event.failure,
                handed=[WireCall.of(call) for call in event.handed],
            )
    assert_never(event)


def decode_turn(payload: dict[str, Any]) -> tuple[tuple[RunId, ...], core.TurnEvent]:
    """The runs and the event in the payload of a `turn` event; raises `ValueError` where it is none."""
    found = TurnPayload.model_validate(payload)
    return tuple(map(RunId, found.runs)), decode_event(found.event)


def decode_event(event: WireEvent) -> core.TurnEvent:
    """The value of `core` that was sent."""
    decode = _DECODERS[event.type]
    return decode(event)


def _key(event: AcceptedEvent | TurnStartedEvent) -> SessionKey:
    return SessionKey.parse(event.session_key, default_agent=AgentId(event.agent))


_DECODERS: dict[str, Callable[[Any], core.TurnEvent]] = {
    "accepted": lambda e: core.Accepted(RunId(e.run_id), _key(e), e.accepted_at),
    "turn_started": lambda e: core.TurnStarted(RunId(e.run_id), _key(e), e.model),
    "spoken": lambda e: core.TextDelta(e.text),
    "thought": lambda e: core.ReasoningDelta(e.text),
    "answered": lambda e: core.MessageFinished(e.message.value()),
    "tool_started": lambda e: core.ToolStarted(e.call.value()),
    "tool_progress": lambda e: core.ToolProgress(e.call_id, e.text),
    "tool_finished": lambda e: core.ToolFinished(e.call.value(), e.result.value(), e.seconds),
    "approval_asked": lambda e: core.ApprovalAsked(e.request.value()),
    "approval_given": lambda e: core.ApprovalGiven(e.request.value(), e.decision.value()),
    "notice": lambda e: core.Notice(e.text),
    "turn_finished": lambda e: core.TurnFinished(
        RunId(e.run_id),
        e.status,
        e.text,
        e.usage.value(),
        e.model,
        e.error,
        e.failure,
        tuple(call.value() for call in e.handed),
    ),
}
