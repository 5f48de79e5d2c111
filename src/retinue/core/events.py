"""What happens in a turn, told while it happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from retinue.core.approval import ApprovalDecision, ApprovalRequest
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, ToolCall, ToolResult, Usage
from retinue.core.model import Failure


class TurnStatus(StrEnum):
    """How a turn ended."""

    OK = "ok"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message is kept for good: whatever happens to this process, it will be answered."""

    run: RunId
    session: SessionKey
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins; `model` is the one it will try first."""

    run: RunId
    session: SessionKey
    model: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More words of the answer, as the person should see them."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The model finished one message of the turn; it is in the transcript."""

    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call is about to take effect; it is in the transcript."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A running tool has something to show."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call ended; its result is in the transcript."""

    call: ToolCall
    result: ToolResult
    seconds: float


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A person is being asked."""

    request: ApprovalRequest


@dataclass(frozen=True, slots=True)
class ApprovalGiven:
    """A person, or the lack of one, decided."""

    request: ApprovalRequest
    decision: ApprovalDecision


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the person should know: a fallback model, a retry, a truncation."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnFinished:
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
