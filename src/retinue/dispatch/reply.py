"""Converting the text of a model to the reply that is shown and sent, in pieces that fit a chat."""

from __future__ import annotations

import re
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import CallSummary
from retinue.core.events import Emit, MessageFinished, ReasoningDelta, TextDelta, ToolFinished, TurnEvent, TurnFinished
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, text_of
from retinue.dispatch.markup import Scanner
from retinue.dispatch.silence import (
    ACK_MAX_CHARS,
    is_silent,
    may_become_silent,
    split_safe,
    strip_heartbeat,
    strip_leading_token,
    strip_trailing_token,
)

_FENCE = re.compile(r"^(```+|~~~+)[^\n]*$", re.MULTILINE)
_MIN_PIECE_CHARS = 40


class ParsedReply(Struct, frozen=True):
    """An answer, ready to be sent.

    `silent` means that the model asked to send nothing. `reply_to` is the message to answer to, `to_current` the one
    that started the turn; `media` are paths and addresses, not checked yet.
    """

    text: str
    reply_to: str | None = None
    to_current: bool = False
    media: tuple[str, ...] = ()
    voice: bool = False
    silent: bool = False


class VisibleStream:
    """An answer during streaming: returns text that may be shown, and holds back text that may turn out to be markup.

    The concatenated output of `feed` and `finish` equals the text that `parse_reply` returns for the whole answer. The
    answer of a heartbeat is held back to the end, because its last word can make it an acknowledgement.
    """

    def __init__(
        self, *, final_only: bool = False, heartbeat: bool = False, ack_max_chars: int = ACK_MAX_CHARS
    ) -> None:
        self._scanner = Scanner(self._see, final_only=final_only)
        self._heartbeat = heartbeat
        self._ack_max_chars = ack_max_chars
        self._beginning = True
        self._held = ""
        self._ready: list[str] = []
        self._fed: list[str] = []
        self._shown: list[str] = []
        self._silent = False

    def feed(self, delta: str) -> str:
        """Add a delta and return the text that may be shown now."""
        self._fed.append(delta)
        self._scanner.feed(delta)
        return self._take_ready()

    def record_reasoning(self) -> None:
        """Record that the model reasoned outside of the text."""
        self._scanner.directives.reasoned = True

    def finish(self) -> str:
        """Return the remaining text at the end of the stream."""
        self._scanner.finish()
        text = self._held
        if self._beginning:
            self._silent = is_silent(text, reasoned=self._scanner.directives.reasoned)
            text = "" if self._silent else strip_leading_token(text)
        text = strip_trailing_token(text)
        if self._heartbeat and text:
            text = strip_heartbeat(text, self._ack_max_chars)
            self._silent = not text
        self._held = ""
        self._ready.append(text)
        return self._take_ready()

    @property
    def reply(self) -> ParsedReply:
        """Return the whole answer after `finish`."""
        directives = self._scanner.directives
        if self._silent and not directives.media:
            return ParsedReply("", silent=True)
        return ParsedReply(
            text="".join(self._shown),
            reply_to=directives.reply_to,
            to_current=directives.to_current,
            media=directives.media,
            voice=directives.voice,
            silent=self._silent,
        )

    def show_streamed(self, message: AssistantMessage) -> AssistantMessage | None:
        """Return a message as `show_message` does, after `finish`; None if it is more than the text that was fed."""
        match message.content:
            case (Text(text),) if text == "".join(self._fed) and not self._scanner.directives.reasoned:
                shown = "".join(self._shown)
                return replace(message, content=(Text(shown),) if shown else ())
        return None

    def _see(self, text: str) -> None:
        """Add visible text from the scanner; the beginning is held back while it may still be a silence token."""
        self._held += text
        if self._beginning:
            if self._heartbeat or may_become_silent(self._held, reasoned=self._scanner.directives.reasoned):
                return
            self._beginning = False
            self._held = strip_leading_token(self._held)
        ready, self._held = split_safe(self._held)
        self._ready.append(ready)

    def _take_ready(self) -> str:
        piece = "".join(self._ready)
        self._ready.clear()
        self._shown.append(piece)
        return piece


def parse_reply(
    text: str,
    *,
    reasoned: bool = False,
    final_only: bool = False,
    heartbeat: bool = False,
    ack_max_chars: int = ACK_MAX_CHARS,
) -> ParsedReply:
    """Parse a whole answer and remove the directives for the program."""
    stream = VisibleStream(final_only=final_only, heartbeat=heartbeat, ack_max_chars=ack_max_chars)
    if reasoned:
        stream.record_reasoning()
    stream.feed(text)
    stream.finish()
    return stream.reply


class VisibleEvents:
    """Filters the events of a turn for display; afterwards it contains the reply and the calls that were made."""

    def __init__(
        self,
        show: Emit,
        *,
        heartbeat: bool = False,
        ack_max_chars: int = ACK_MAX_CHARS,
        final_only: bool = False,
    ) -> None:
        self._show = show
        self._new_stream = partial(
            VisibleStream, heartbeat=heartbeat, ack_max_chars=ack_max_chars, final_only=final_only
        )
        self._stream = self._new_stream()
        self.reply = ParsedReply("")
        self.preceding: tuple[str, ...] = ()
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
                streamed = self._stream
                await self._close_message()
                shown = streamed.show_streamed(message) or show_message(message, self._new_stream())[0]
                event = MessageFinished(shown)
            case ToolFinished(call, result):
                self.calls.append(CallSummary(call.name, call.arguments, result.is_error))
            case TurnFinished():
                await self._close_message()
                event = replace(event, text=self.reply.text, media=self.reply.media)
        await self._show(event)

    async def _speak(self, text: str) -> None:
        if text:
            await self._show(TextDelta(text))

    async def _close_message(self) -> None:
        """End one message of the turn; the last one with text is the reply."""
        await self._speak(self._stream.finish())
        reply = self._stream.reply
        if reply.text or reply.media or reply.silent:
            self.preceding += (self.reply.text,) if self.reply.text else ()
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


def split_text(text: str, limit: int) -> tuple[str, ...]:
    """Split a text into pieces of at most `limit` characters.

    A piece ends after a paragraph if possible, else after a line, else after a word. A code block that is split is
    closed and opened again.
    """
    limit = max(limit, _MIN_PIECE_CHARS)
    pieces = []
    rest = text.strip("\n")
    while len(rest) > limit:
        cut = _find_cut(rest, limit - 8)
        piece, rest = rest[:cut].rstrip(), rest[cut:].lstrip("\n")
        fence = _open_fence(piece)
        if fence is not None and len(fence) < limit // 4:
            close = fence[: len(fence) - len(fence.lstrip(fence[0]))][:7]
            piece, rest = f"{piece}\n{close}", f"{fence}\n{rest}"
        if piece:
            pieces.append(piece)
    return (*pieces, rest) if rest.strip() else tuple(pieces)


def split_paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text; a block of code is part of one, whatever it contains."""
    paragraphs: list[str] = []
    for part in re.split(r"\n[ \t]*\n", text.strip("\n")):
        if paragraphs and _open_fence(paragraphs[-1]) is not None:
            paragraphs[-1] += f"\n\n{part}"
        elif part.strip():
            paragraphs.append(part)
    return tuple(paragraphs)


def _find_cut(text: str, limit: int) -> int:
    for mark in ("\n\n", "\n", ". ", " "):
        at = text.rfind(mark, limit // 3, limit)
        if at > 0:
            return at + len(mark)
    return limit


def _open_fence(piece: str) -> str | None:
    """Return the line that opened the code block in which a piece ends; None if it does not end in one."""
    opened: str | None = None
    for found in _FENCE.finditer(piece):
        if opened is None:
            opened = found[0].rstrip()
        elif found[0].strip()[0] == opened[0] and set(found[0].strip()) == {opened[0]}:
            opened = None
    return opened
