"""A client's connection for HTTP/1.1: it sends a request whose body is known, and reads the response as it arrives.

It exists because a turn spends much of its time in the layers of an HTTP library. It knows no redirects, compression,
proxies or pipelining. A response that is ambiguous or too large ends the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import cast

from retinue.security.network import MAX_HEADER_BYTES

Headers = list[tuple[bytes, bytes]]

MAX_HEAD_BYTES = 2 * MAX_HEADER_BYTES
"""More is not read while a head is incomplete; the caller refuses less than this with a better message."""
MAX_SIZE_LINE_BYTES = 4_096
MAX_WAITING_BYTES = 256 * 1024
"""A server that sends faster than the response is read must wait."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\0\r\n]*)?\r?\n")
_FIELD_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r?\n)*")
_FIELD = re.compile(rb"([^:\r\n]+):([^\r\n]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\0\r\n]*)?")
_LENGTH = re.compile(r"[0-9]{1,15}")


class BadResponse(ConnectionError):
    """A response does not follow the protocol, or it ended too early."""


class NoResponse(BadResponse):
    """The connection was closed before anything of a response arrived."""


class ResponseParser:
    """Parses one response; `feed` returns the parts of its body."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: Headers = []
        self.is_complete = False
        self.allows_reuse = False
        """Whether the connection may be used again after the response."""
        self._rest = b""
        self._left: int | None = None
        """Bytes until the end of the body or, if it is chunked, of the chunk; None until the connection ends."""
        self._is_chunked = False
        self._is_after_chunk = False
        self._has_last_chunk = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add the next bytes of the connection; raise `BadResponse` if they are invalid."""
        if self._rest:
            data = self._rest + data
        self._rest = b""
        while self.status is None:
            end = _HEAD_END.search(data)
            if (end.end() if end else len(data)) > MAX_HEAD_BYTES:
                raise BadResponse("the headers of the response are too large")
            if end is None:
                self._rest = data
                return []
            self._read_head(data[: end.end()])
            data = data[end.end() :]
        if self.is_complete:
            self.allows_reuse = self.allows_reuse and not data
            return []
        return self._feed_chunks(data) if self._is_chunked else self._feed_body(data)

    def finish(self) -> None:
        """The connection has ended: raise `BadResponse` if the response was not complete."""
        if self.status is None or self._is_chunked or self._left is not None:
            raise BadResponse("the connection was closed before the response was complete")
        self.is_complete = True

    def _read_head(self, head: bytes) -> None:
        line = _STATUS_LINE.match(head)
        if line is None:
            raise BadResponse("the response does not begin with a status line of HTTP/1.1")
        fields = _FIELD_LINES.match(head, line.end())
        assert fields is not None  # it also matches nothing
        if head[fields.end() :] not in (b"\r\n", b"\n"):
            raise BadResponse("the response has an invalid header")
        status = int(line[2])
        if status == 101:
            raise BadResponse("the response changes the protocol although nobody asked for it")
        if status >= 200:  # others precede the response
            found = _FIELD.findall(head, line.end(), fields.end())
            self.headers = [(name, value.strip(b" \t")) for name, value in found]
            self._read_framing(status, is_old=line[1] == b"0")
            self.status = status

    def _read_framing(self, status: int, *, is_old: bool) -> None:
        """Find how long the body is (RFC 9112, section 6.3)."""
        said: dict[str, list[str]] = {}
        for name, value in self.headers:
            said.setdefault(name.decode().lower(), []).append(value.decode("latin-1").lower())
        encodings, lengths = said.get("transfer-encoding", []), set(said.get("content-length", ()))
        options = {option.strip() for value in said.get("connection", ()) for option in value.split(",")}
        self.allows_reuse = not is_old and "close" not in options
        if status in (204, 304):
            self.is_complete = True
        elif encodings:
            if encodings != ["chunked"]:
                raise BadResponse("the response has an unknown transfer encoding")
            self._is_chunked, self._left = True, 0
            self.allows_reuse = self.allows_reuse and not lengths
        elif lengths:
            length = lengths.pop()
            if lengths or not _LENGTH.fullmatch(length):
                raise BadResponse("the response has an invalid length")
            self._left = int(length)
            self.is_complete = self._left == 0
        else:
            self.allows_reuse = False

    def _feed_body(self, data: bytes) -> list[bytes]:
        if self._left is not None:
            if len(data) > self._left:
                self.allows_reuse = False
                data = data[: self._left]
            self._left -= len(data)
            self.is_complete = self._left == 0
        return [data] if data else []

    def _feed_chunks(self, data: bytes) -> list[bytes]:
        parts = []
        at = 0
        while at < len(data) and not self.is_complete:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._is_after_chunk = self._left == 0
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > MAX_SIZE_LINE_BYTES:
                    raise BadResponse("the response has a chunk without a size")
                return parts
            self._read_chunk_line(data[at:end].removesuffix(b"\r"))
            at = end + 1
        if at < len(data):
            self.allows_reuse = False
        return parts

    def _read_chunk_line(self, line: bytes) -> None:
        """Read the line before a chunk, the empty one after it, or one after the last chunk."""
        if self._has_last_chunk:
            self.is_complete = not line  # other lines are trailers, which nobody reads
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_HEAD_BYTES:
                raise BadResponse("the trailers of the response are too large")
        elif self._is_after_chunk:
            if line:
                raise BadResponse("the response has a chunk that is longer than its size")
            self._is_after_chunk = False
        else:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise BadResponse("the response has a chunk without a size")
            self._left = int(size[1], 16)
            self._has_last_chunk = self._left == 0


class Http1Connection(asyncio.Protocol):
    """A connection that is used for one request at a time. Its errors are `OSError`s, time-outs `TimeoutError`s."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: ResponseParser | None = None
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self._has_received = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def idle_seconds(self) -> float:
        """The time since the connection was released."""
        return self._loop.time() - self._idle_since

    async def send(self, head: bytes, body: bytes, seconds: float) -> ResponseParser:
        """Send a request and wait for the head of its response; `seconds` is the longest pause."""
        assert self._transport is not None
        assert self._parser is None
        self._parser = parser = ResponseParser()
        self._has_received = False
        self._transport.writelines([head, body])
        try:
            while parser.status is None:
                await self._wait(seconds)
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError) and not self._has_received:
                raise NoResponse(str(error)) from error
            raise
        return parser

    async def receive(self, seconds: float) -> bytes:
        """Wait for the next part of the body; return nothing at its end."""
        assert self._transport is not None
        assert self._parser is not None
        while not self._parts:
            if self._parser.is_complete:
                return b""
            await self._wait(seconds)
        part = self._parts.popleft()
        if self._waiting_bytes > MAX_WAITING_BYTES >= self._waiting_bytes - len(part):
            self._transport.resume_reading()
        self._waiting_bytes -= len(part)
        return part

    def release(self) -> bool:
        """Return whether the connection can be used for another request; otherwise it is closed."""
        parser, self._parser = self._parser, None
        if self.is_open and parser is not None and parser.is_complete and parser.allows_reuse and not self._parts:
            self._idle_since = self._loop.time()
            return True
        self.close()
        return False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass

    def data_received(self, data: bytes) -> None:
        self._has_received = True
        if self._parser is None or self._parser.is_complete:
            self._fail(BadResponse("the server sent data that nobody asked for"))
            return
        try:
            parts = self._parser.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        before = self._waiting_bytes
        for part in parts:
            self._parts.append(part)
            self._waiting_bytes += len(part)
        if before <= MAX_WAITING_BYTES < self._waiting_bytes:
            assert self._transport is not None
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        error = exc
        if error is None and self._parser is not None and not self._parser.is_complete:
            try:
                self._parser.finish()
            except BadResponse as incomplete:
                error = incomplete
        self._fail(error or BadResponse("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _time_out(self) -> None:
        self._fail(TimeoutError("the server did not send anything in time"))

    async def _wait(self, seconds: float) -> None:
        """Wait until something has arrived; raise the error that ended the connection."""
        if self._error is None:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(seconds, self._time_out)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        assert self._parser is not None
        if self._error is not None and not self._parts and not self._parser.is_complete:
            raise self._error
