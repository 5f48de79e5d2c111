"""The server's protocol classes: HTTP with an idle limit, and WebSockets that can be cut off."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from retinue.gateway.ws.socket import ABORT

IDLE_SECONDS = 60
MAX_GATHERED_BYTES = 64 * 1024


class HttpProtocol(H11Protocol):
    """HTTP with an idle limit from the start: a connection that does not send a whole request in time is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheredWrites(transport, self.loop))
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if getattr(self, "cycle", None) is None and self.transport.get_protocol() is self:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(IDLE_SECONDS, self.timeout_keep_alive_handler)


class SocketProtocol(WebSocketsSansIOProtocol):
    """WebSockets that can be aborted: closing waits for a client that does not read, aborting does not."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT] = self.transport.abort


class GatheredWrites(asyncio.Transport):
    """A transport that sends everything written in one iteration of the event loop at once.

    Each write wakes the reader, which costs more than its content: the head and the body of a response, or the frames
    of a burst, are better sent together.
    """

    def __init__(self, connection: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._connection = connection
        self._loop = loop
        self._gathered: list[bytes | bytearray | memoryview[Any]] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not data:
            return
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= MAX_GATHERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self._connection.write(b"".join(gathered))

    def close(self) -> None:
        self._flush()
        self._connection.close()

    def abort(self) -> None:
        self._gathered.clear()
        self._connection.abort()

    def is_closing(self) -> bool:
        return self._connection.is_closing()

    def pause_reading(self) -> None:
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._connection.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._connection.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._connection.get_protocol()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.get_extra_info(name, default)
