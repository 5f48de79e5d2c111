"""The WebSocket side of a fake service: one program is connected at a time, and the connection can be cut."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed


class SocketServer:
    """Serves WebSockets on a loopback port; `converse` handles a connection until it ends."""

    def __init__(self, converse: Callable[[ServerConnection], Awaitable[None]]) -> None:
        self._converse = converse
        self._server: Server | None = None
        self.open: list[ServerConnection] = []

    async def start(self) -> None:
        self._server = await serve(self._accept, "127.0.0.1", 0, compression=None)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None, "the server has not been started"
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def cut(self) -> None:
        """End all connections without a farewell."""
        for each in tuple(self.open):
            each.transport.abort()

    async def _accept(self, socket: ServerConnection) -> None:
        self.open.append(socket)
        try:
            await self._converse(socket)
        except ConnectionClosed:
            pass
        finally:
            self.open.remove(socket)


async def send_json(socket: ServerConnection, frame: Any) -> None:
    """Send a frame; a connection that has ended is ignored."""
    try:
        await socket.send(json.dumps(frame))
    except ConnectionClosed:
        return
