"""The visible part of a model's text: without directives, silence tokens and hidden reasoning."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from retinue.core.envelope import CallSummary
from retinue.core.events import Emit, MessageFinished, ReasoningDelta, TextDelta, ToolFinished, TurnEvent, TurnFinished
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, text_of
from retinue.dispatch.delivery import ParsedReply, VisibleStream
from retinue.dispatch.silence import ACK_MAX_CHARS


class VisibleEvents:
    """Filters the events of a turn for display; afterwards it contains the reply and the calls that were made."""

    def __init__(self, show: Emit, *, heartbeat: bool = False, ack_max_chars: int = ACK_MAX_CHARS) -> None:
        self._show = show
        self._new_stream = partial(VisibleStream, heartbeat=heartbeat, ack_max_chars=ack_max_chars)
        self._stream = self._new_stream()
        self.reply = ParsedReply("")
        self.calls: list[CallSummary] = []

    async def emit(self, event: TurnEvent) -> None:
        """Forward an event, changed if necessary."""
        match event:
            case TextDelta(text):
                await self._speak(self._stream.feed(text))
                return
            case ReasoningDelta():
                self._stream.record_reasoning()
            case MessageFinished(message):
                await self._close_message()
                event = MessageFinished(show_message(message, self._new_stream())[0])
            case ToolFinished(call, result):
                self.calls.append(CallSummary(call.name, call.arguments, result.is_error))
            case TurnFinished():
                await self._close_message()
                event = replace(event, text=self.reply.text)
        await self._show(event)

    async def _speak(self, text: str) -> None:
        if text:
            await self._show(TextDelta(text))

    async def _close_message(self) -> None:
        """End one message of the turn; the last one with text is the reply."""
        await self._speak(self._stream.finish())
        reply = self._stream.reply
        if reply.text or reply.media or reply.silent:
            self.reply = replace(reply, media=(*self.reply.media, *reply.media))
        self._stream = self._new_stream()


def show_message(message: AssistantMessage, stream: VisibleStream) -> tuple[AssistantMessage, ParsedReply]:
    """Return a message of the model with the delivered text, and the directives of the other messages.

    `stream` is a new one. Calls and reasoning are unchanged, and remaining text keeps its position.
    """
    parts: list[Text | Thinking | ToolCall] = []
    for part in message.content:
        match part:
            case Text(text):
                parts.append(Text(stream.feed(text)))
                continue
            case Thinking():
                stream.record_reasoning()
        parts.append(part)
    rest = stream.finish()
    last = max((at for at, part in enumerate(parts) if isinstance(part, Text)), default=None)
    if last is not None:
        parts[last] = Text(text_of((parts[last],)) + rest)
    shown = tuple(part for part in parts if not isinstance(part, Text) or part.text)
    return replace(message, content=shown), stream.reply
