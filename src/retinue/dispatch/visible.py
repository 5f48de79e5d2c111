"""The events of a turn as a person may see them: no directives, no silence tokens, no hidden reasoning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from retinue.core.envelope import CallSummary
from retinue.core.events import Answered, Emit, Spoken, Thought, ToolFinished, TurnEvent, TurnFinished
from retinue.dispatch.delivery import Reply, VisibleStream
from retinue.dispatch.silence import ACK_MAX_CHARS


class VisibleEvents:
    """Stands between a turn and whoever shows it; afterwards it knows the reply and the calls that were made."""

    def __init__(self, show: Emit, *, heartbeat: bool = False, ack_max_chars: int = ACK_MAX_CHARS) -> None:
        self._show = show
        self._new_stream = partial(VisibleStream, heartbeat=heartbeat, ack_max_chars=ack_max_chars)
        self._stream = self._new_stream()
        self.reply = Reply("")
        self.calls: list[CallSummary] = []

    async def emit(self, event: TurnEvent) -> None:
        """Pass an event on, changed where it must be."""
        match event:
            case Spoken(text):
                await self._speak(self._stream.feed(text))
                return
            case Thought():
                self._stream.note_reasoning()
            case Answered():
                await self._close_message()
            case ToolFinished(call, result):
                self.calls.append(CallSummary(call.name, call.arguments, result.is_error))
            case TurnFinished():
                await self._close_message()
                event = replace(event, text=self.reply.text)
        await self._show(event)

    async def _speak(self, text: str) -> None:
        if text:
            await self._show(Spoken(text))

    async def _close_message(self) -> None:
        """End one message of the turn; the last one that says something is the reply."""
        await self._speak(self._stream.finish())
        reply = self._stream.reply
        if reply.text or reply.media or reply.silent:
            self.reply = replace(reply, media=(*self.reply.media, *reply.media))
        self._stream = self._new_stream()
