"""What happens in a turn, told while it happens."""

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
    """A message is kept for good: whatever happens to this process, it will be answered."""

    run: RunId
    session: SessionKey
    accepted_at: datetime


class TurnStarted(Struct, frozen=True):
    """A turn begins; `model` is the one it will try first."""

    run: RunId
    session: SessionKey
    model: str


class TextDelta(Struct, frozen=True):
    """More words of the answer, as the person should see them."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class MessageFinished(Struct, frozen=True):
    """The model finished one message of the turn; it is in the transcript."""

    message: AssistantMessage


class ToolStarted(Struct, frozen=True):
    """A tool call is about to take effect; it is in the transcript."""

    call: ToolCall


class ToolProgress(Struct, frozen=True):
    """A running tool has something to show."""

    call_id: str
    text: str


class ToolFinished(Struct, frozen=True):
    """A tool call ended; its result is in the transcript."""

    call: ToolCall
    result: ToolResult
    seconds: float


class ApprovalAsked(Struct, frozen=True):
    """A person is being asked."""

    request: ApprovalRequest


class ApprovalGiven(Struct, frozen=True):
    """A person, or the lack of one, decided."""

    request: ApprovalRequest
    decision: ApprovalDecision


class Notice(Struct, frozen=True):
    """Something the person should know: a fallback model, a retry, a truncation."""

    text: str


class TurnFinished(Struct, frozen=True):
    """The turn ended; `text` is the whole visible answer, `handed` the calls that the sender runs itself."""

    run: RunId
    status: TurnStatus
    text: str
    usage: Usage
    model: str
    error: str | None = None
    failure: Failure | None = None
    """What kind of failure ended it, where a model's did."""
    handed: tuple[ToolCall, ...] = ()


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
"""Takes the events of a turn, in order."""
