"""The events of a turn, sent while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from retinue.core.approval import ApprovalDecision, ApprovalRequest
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, ToolCall, ToolResult, Usage
from retinue.core.model import Failure


class TurnStatus(StrEnum):
    """How a turn ended."""

    OK = "ok"
    ABORTED = "aborted"
    FAILED = "failed"


class Accepted(Struct, frozen=True):
    """A message was stored: it will be answered even if this process ends."""

    run: RunId
    session: SessionKey
    accepted_at: datetime


class TurnStarted(Struct, frozen=True):
    """A turn started; `model` is the first one to try."""

    run: RunId
    session: SessionKey
    model: str


class TextDelta(Struct, frozen=True):
    """A part of the answer, as shown to the person."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """A part of the model's reasoning."""

    text: str


class MessageFinished(Struct, frozen=True):
    """The model finished one message of the turn; it is in the transcript."""

    message: AssistantMessage


class ToolStarted(Struct, frozen=True):
    """A tool call is about to run; it is in the transcript."""

    call: ToolCall


class ToolProgress(Struct, frozen=True):
    """A running tool reported progress."""

    call_id: str
    text: str


class ToolFinished(Struct, frozen=True):
    """A tool call ended; its result is in the transcript."""

    call: ToolCall
    result: ToolResult
    seconds: float


class ApprovalAsked(Struct, frozen=True):
    """An approval was requested."""

    request: ApprovalRequest


class ApprovalGiven(Struct, frozen=True):
    """An approval request was decided, or denied because no person is present."""

    request: ApprovalRequest
    decision: ApprovalDecision


class Notice(Struct, frozen=True):
    """A notice for the person: a fallback model, a retry, a truncation."""

    text: str
    wait_seconds: float | None = None
    """The pause before the turn continues, if the notice announces one."""


class TurnFinished(Struct, frozen=True):
    """The turn ended; `text` is the whole visible answer, `handed` are the calls of client tools."""

    run: RunId
    status: TurnStatus
    text: str
    usage: Usage
    model: str
    error: str | None = None
    failure: Failure | None = None
    """The kind of failure, if a model failure ended the turn."""
    handed: tuple[ToolCall, ...] = ()
    retry_after: float | None = None
    """After how many seconds the provider accepts another request, if it said so."""
    media: tuple[str, ...] = ()
    """The paths and addresses of files that the answer sends."""


TurnEvent = (
    Accepted
    | TurnStarted
    | TextDelta
    | ReasoningDelta
    | MessageFinished
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalAsked
    | ApprovalGiven
    | Notice
    | TurnFinished
)

Emit = Callable[[TurnEvent], Awaitable[None]]
"""Receives the events of a turn, in order."""
