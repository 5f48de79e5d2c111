"""Messages, usage and results as they are sent; each knows the value of `core` that it stands for."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import CallSummary, Outbound
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import AssistantMessage, Image, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from retinue.core.trust import Trust
from retinue.wire.frames import Wire


class WireUsage(Wire):
    """What model calls cost."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, usage: Usage) -> WireUsage:
        return cls(
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            cost=usage.cost,
        )

    def value(self) -> Usage:
        return Usage(self.input, self.output, self.cache_read, self.cache_write, self.cost)


class WireText(Wire):
    """Words."""

    type: Literal["text"] = "text"
    text: str


class WireImage(Wire):
    """A picture, base64."""

    type: Literal["image"] = "image"
    media_type: str
    data: str


class WireThinking(Wire):
    """A model's reasoning."""

    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None
    redacted: bool = False


class WireCall(Wire):
    """A tool call."""

    type: Literal["call"] = "call"
    id: str
    name: str
    arguments: dict[str, Any]
    signature: str | None = None

    @classmethod
    def of(cls, call: ToolCall) -> WireCall:
        return cls(id=call.id, name=call.name, arguments=dict(call.arguments), signature=call.signature)

    def value(self) -> ToolCall:
        return ToolCall(self.id, self.name, self.arguments, self.signature)


WirePart = Annotated[WireText | WireImage | WireThinking | WireCall, Field(discriminator="type")]


def encode_part(part: Text | Image | Thinking | ToolCall) -> WireText | WireImage | WireThinking | WireCall:
    match part:
        case Text(text):
            return WireText(text=text)
        case Image(media_type, data):
            return WireImage(media_type=media_type, data=data)
        case Thinking(text, signature, redacted):
            return WireThinking(text=text, signature=signature, redacted=redacted)
        case ToolCall():
            return WireCall.of(part)
    assert_never(part)


def decode_part(part: WireText | WireImage | WireThinking | WireCall) -> Text | Image | Thinking | ToolCall:
    match part:
        case WireText(text=text):
            return Text(text)
        case WireImage(media_type=media_type, data=data):
            return Image(media_type, data)
        case WireThinking():
            return Thinking(part.text, part.signature, part.redacted)
        case WireCall():
            return part.value()
    assert_never(part)


class WireAnswer(Wire):
    """One message of the model."""

    content: list[WirePart]
    model: str
    usage: WireUsage
    stop: StopReason
    error: str | None = None

    @classmethod
    def of(cls, message: AssistantMessage) -> WireAnswer:
        return cls(
            content=[encode_part(part) for part in message.content],
            model=message.model,
            usage=WireUsage.of(message.usage),
            stop=message.stop,
            error=message.error,
        )

    def value(self) -> AssistantMessage:
        parts = [decode_part(part) for part in self.content]
        return AssistantMessage(
            tuple(part for part in parts if not isinstance(part, Image)),
            self.model,
            self.usage.value(),
            self.stop,
            self.error,
        )


class WireResult(Wire):
    """What a tool gave back."""

    call_id: str
    tool: str
    content: list[Annotated[WireText | WireImage, Field(discriminator="type")]]
    is_error: bool = False
    trust: Trust = Trust.UNTRUSTED

    @classmethod
    def of(cls, result: ToolResult) -> WireResult:
        content = [encode_part(part) for part in result.content]
        return cls(
            call_id=result.call_id,
            tool=result.tool,
            content=[part for part in content if isinstance(part, WireText | WireImage)],
            is_error=result.is_error,
            trust=result.trust,
        )

    def value(self) -> ToolResult:
        parts = tuple(part for each in self.content if isinstance(part := decode_part(each), Text | Image))
        return ToolResult(self.call_id, self.tool, parts, self.is_error, self.trust)


class WireApproval(Wire):
    """A question to a person: exactly what would happen."""

    id: str
    tool: str
    title: str
    detail: str
    agent: str
    session_key: str
    remember: list[list[str]] = Field(default_factory=list)
    """What "always" would store; where it is empty, there is no "always"."""
    binding: str = ""
    explanation: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, request: ApprovalRequest) -> WireApproval:
        return cls(
            id=request.id,
            tool=request.tool,
            title=request.title,
            detail=request.detail,
            agent=request.agent,
            session_key=request.session.text,
            remember=[list(pattern) for pattern in request.remember],
            binding=request.binding,
            explanation=list(request.explanation),
        )

    def value(self) -> ApprovalRequest:
        return ApprovalRequest(
            self.id,
            self.tool,
            self.title,
            self.detail,
            AgentId(self.agent),
            SessionKey.parse(self.session_key, default_agent=AgentId(self.agent)),
            tuple(tuple(pattern) for pattern in self.remember),
            self.binding,
            tuple(self.explanation),
        )


class WireDecision(Wire):
    """What a person decided, or why it was decided without one."""

    verdict: Verdict
    because: str
    by: str = ""

    @classmethod
    def of(cls, decision: ApprovalDecision) -> WireDecision:
        return cls(verdict=decision.verdict, because=decision.because, by=decision.by)

    def value(self) -> ApprovalDecision:
        return ApprovalDecision(self.verdict, self.because, self.by)


class WireCallSummary(Wire):
    """A tool call of a turn, in brief."""

    name: str
    arguments: dict[str, Any]
    is_error: bool


class WireOutbound(Wire):
    """What became of a message."""

    run_id: str
    session_key: str
    agent: str
    session_id: str
    status: TurnStatus
    text: str
    model: str = ""
    usage: WireUsage = Field(default_factory=WireUsage)
    calls: list[WireCallSummary] = Field(default_factory=list)
    reply_to: str | None = None
    to_current: bool = False
    media: list[str] = Field(default_factory=list)
    voice: bool = False
    silent: bool = False
    error: str | None = None

    @classmethod
    def of(cls, outbound: Outbound) -> WireOutbound:
        return cls(
            run_id=outbound.run,
            session_key=outbound.session.text,
            agent=outbound.session.agent,
            session_id=outbound.session_id,
            status=outbound.status,
            text=outbound.text,
            model=outbound.model,
            usage=WireUsage.of(outbound.usage),
            calls=[
                WireCallSummary(name=call.name, arguments=dict(call.arguments), is_error=call.is_error)
                for call in outbound.calls
            ],
            reply_to=outbound.reply_to,
            to_current=outbound.to_current,
            media=list(outbound.media),
            voice=outbound.voice,
            silent=outbound.silent,
            error=outbound.error,
        )

    def value(self) -> Outbound:
        return Outbound(
            run=RunId(self.run_id),
            session=SessionKey.parse(self.session_key, default_agent=AgentId(self.agent)),
            session_id=self.session_id,
            status=self.status,
            text=self.text,
            model=self.model,
            usage=self.usage.value(),
            calls=tuple(CallSummary(call.name, call.arguments, call.is_error) for call in self.calls),
            reply_to=self.reply_to,
            to_current=self.to_current,
            media=tuple(self.media),
            voice=self.voice,
            silent=self.silent,
            error=self.error,
        )


class Acknowledged(Wire):
    """A message is kept for good. `duplicate` tells that an earlier request with the same key had brought it."""

    run_id: str
    session_key: str
    accepted_at: datetime
    duplicate: bool = False
