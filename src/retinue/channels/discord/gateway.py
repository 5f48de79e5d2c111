"""Discord's gateway: one connection that is resumed where it ended, so that nothing in between is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from retinue.channels.channel import AccountRefused, DeliveryFailed
from retinue.channels.known_chats import with_last
from retinue.channels.service_client import open_socket
from retinue.core.codec import dump_json, from_plain, load_json, to_plain

log = logging.getLogger(__name__)

HEARTBEAT, IDENTIFY, RESUME, HELLO = 1, 2, 6, 10
INTENTS = 1 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 13
MESSAGE_CONTENT = 1 << 15
_REFUSED = {
    4004: "Discord does not accept the token. Reset it on the application's page.",
    4010: "Discord refused the connection: sharding is required for this bot.",
    4011: "Discord refused the connection: sharding is required for this bot.",
    4013: "Discord refused the intents of the bot.",
    4014: "Switch on 'Message Content Intent' on the bot's page, or set intents.messageContent to false.",
}
_NEW_SESSION = frozenset({4007, 4009})


class GatewayPosition(Struct, frozen=True):
    """Where the connection ended: its session, and the last message of each chat in case the session is over."""

    session: str = ""
    sequence: int = 0
    address: str = ""
    chats: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str | None) -> GatewayPosition:
        if not text:
            return cls()
        try:
            return from_plain(load_json(text), cls)
        except (ValueError, TypeError):
            return cls()

    def __str__(self) -> str:
        return dump_json(to_plain(self))

    def with_message(self, chat: str, message: str) -> GatewayPosition:
        """Return the position after a message of a chat."""
        return replace(self, chats=with_last(self.chats, chat, message))


class GatewayEvent(Struct, frozen=True):
    """An event, and its number in the session."""

    name: str
    data: dict[str, Any]
    sequence: int


class GatewayConnection:
    """A connection after its beginning; `position` is behind the last event."""

    def __init__(self, socket: ClientConnection, token: str, intents: int, position: GatewayPosition) -> None:
        self._socket = socket
        self._token = token
        self._intents = intents
        self.position = position
        self._is_answered = True

    async def begin(self) -> float:
        """Identify or resume; returns the seconds between heartbeats."""
        hello = await self._receive()
        if hello.get("op") != HELLO:
            raise DeliveryFailed("Discord did not begin the connection as documented.")
        if self.position.session:
            resume = {"token": self._token, "session_id": self.position.session, "seq": self.position.sequence}
            await self._send(RESUME, resume)
        else:
            properties = {"os": "linux", "browser": "retinue", "device": "retinue"}
            await self._send(IDENTIFY, {"token": self._token, "intents": self._intents, "properties": properties})
        return float(hello["d"]["heartbeat_interval"]) / 1000

    async def beat(self, seconds: float) -> None:
        """Send heartbeats until one is not answered; then the connection is dead and is closed."""
        await anyio.sleep(seconds * random.random())  # noqa: S311 - spreads the load, as documented
        while True:
            if not self._is_answered:
                await self._socket.close(4000)
                return
            self._is_answered = False
            await self._send(HEARTBEAT, self.position.sequence or None)
            await anyio.sleep(seconds)

    async def next_event(self) -> GatewayEvent | None:
        """Return the next event; None if Discord wants another connection."""
        while True:
            frame = await self._receive()
            match frame.get("op"):
                case 0 if isinstance(frame.get("d"), dict):
                    return GatewayEvent(str(frame.get("t")), frame["d"], int(frame.get("s") or 0))
                case 1:
                    await self._send(HEARTBEAT, self.position.sequence or None)
                case 7:
                    return None
                case 9:
                    if not frame.get("d"):
                        self.position = GatewayPosition(chats=self.position.chats)
                    return None
                case 11:
                    self._is_answered = True

    async def _send(self, code: int, data: Any) -> None:
        await self._socket.send(json.dumps({"op": code, "d": data}))

    async def _receive(self) -> dict[str, Any]:
        try:
            found = json.loads(await self._socket.recv())
        except ConnectionClosed as error:
            code = error.rcvd.code if error.rcvd is not None else 0
            if code in _REFUSED:
                raise AccountRefused(_REFUSED[code]) from None
            if code in _NEW_SESSION:
                self.position = GatewayPosition(chats=self.position.chats)
            raise DeliveryFailed(f"the connection to Discord ended ({code}).") from None
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@asynccontextmanager
async def open_gateway(
    address: str, token: str, intents: int, position: GatewayPosition
) -> AsyncIterator[GatewayConnection]:
    """Open a connection, with heartbeats while the block runs."""
    socket = await open_socket(f"{position.address or address}/?v=10&encoding=json")
    try:
        connection = GatewayConnection(socket, token, intents, position)
        seconds = await connection.begin()
        beats = asyncio.create_task(_beat(connection, seconds))
        try:
            yield connection
        finally:
            beats.cancel()
            await asyncio.wait([beats])
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            # With another code than 1000 and 1001 the session can be resumed.
            await socket.close(4000)


async def _beat(connection: GatewayConnection, seconds: float) -> None:
    try:
        await connection.beat(seconds)
    except ConnectionClosed as error:
        log.debug("a heartbeat was not sent: %s", error)
