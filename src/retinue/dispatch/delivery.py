"""Converting the text of a model to the reply that is sent."""

from __future__ import annotations

from msgspec import Struct

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
        self._shown: list[str] = []
        self._silent = False

    def feed(self, delta: str) -> str:
        """Add a delta and return the text that may be shown now."""
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
