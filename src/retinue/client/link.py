"""The link to a gateway: one WebSocket at a time, requests matched with their responses, events handed on."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from retinue import __version__
from retinue.core.clock import random_id
from retinue.core.errors import RetinueError
from retinue.wire.frames import ClientFacts, Connect, Credentials, Event, Failure, Hello, Request, Response
from retinue.wire.protocol import MOST_FRAME_BYTES, SOCKET_PATH, ErrorCode

log = logging.getLogger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.05, 5.0


class ClientError(RetinueError):
    """The gateway refused a request; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class LinkLost(RetinueError):
    """The connection ended before the answer came."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where a gateway is and how to get in.

    The token is read anew for each connection, and so is the place where `moved` tells it: both may have changed.
    """

    url: str
    token: Callable[[], str | None]
    name: str = "retinue"
    pairing_code: str | None = None
    asks: bool = False
    password: str | None = None
    moved: Callable[[], str | None] | None = None

    @property
    def socket_url(self) -> str:
        url = (self.moved() if self.moved is not None else None) or self.url
        return url.replace("http", "ws", 1).rstrip("/") + SOCKET_PATH

    def explain_silence(self) -> str:
        """What to do where nobody answers at this door."""
        if self.moved is not None:
            return "The gateway cannot be reached. See `retinue gateway status`, or start it: `retinue gateway start`."
        return f"The gateway at {self.url} cannot be reached. Check the address, and whether it runs there."


class Link:
    """A connection that renews itself until it is closed or the gateway says no."""

    def __init__(self, door: Door, on_event: Callable[[Event], None], on_hello: Callable[[Hello], None]) -> None:
        self._door = door
        self._on_event = on_event
        self._on_hello = on_hello
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._socket: ClientConnection | None = None
        self._up = asyncio.Event()
        self._refused: RetinueError | None = None

    async def run(self) -> None:
        """Stay connected until cancelled; ends where the gateway refuses."""
        pause = FIRST_PAUSE
        while self._refused is None:
            try:
                async with connect(
                    self._door.socket_url, max_size=MOST_FRAME_BYTES * 4, compression=None, proxy=None, open_timeout=10
                ) as socket:
                    await self._introduce(socket)
                    pause = FIRST_PAUSE
                    await self._read(socket)
            except ClientError as error:
                if not error.failure.retryable:
                    self._refused = error
            except (OSError, WebSocketException, TimeoutError, ValueError) as error:
                log.debug("the gateway cannot be reached: %s", error)
            finally:
                self._lose()
            if self._refused is None:
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE)
        self._up.set()

    async def request(self, method: str, params: dict[str, Any], patience: float) -> dict[str, Any]:
        """Send a request over the connection, once there is one, and wait for the answer."""
        async with asyncio.timeout(patience):
            await self._up.wait()
        if self._refused is not None:
            raise self._refused
        socket = self._socket
        if socket is None:
            raise LinkLost("The connection to the gateway was lost.")
        identity = random_id()
        future = self._waiting[identity] = asyncio.get_running_loop().create_future()
        try:
            await socket.send(Request(id=identity, method=method, params=params).model_dump_json(by_alias=True))
            answer: dict[str, Any] = await future
            return answer
        except ConnectionClosed:
            raise LinkLost("The connection to the gateway was lost.") from None
        finally:
            self._waiting.pop(identity, None)
            if future.done() and not future.cancelled():
                future.exception()  # seen: the connection may be lost while the request is still being sent

    async def drop(self) -> None:
        """Cut the connection without a word."""
        if self._socket is not None:
            self._socket.transport.abort()
            await self._socket.wait_closed()

    async def _introduce(self, socket: ClientConnection) -> None:
        door = self._door
        token = door.token() if door.pairing_code is None else None
        facts = ClientFacts(name=door.name, version=__version__, platform=platform.system(), asks=door.asks)
        credentials = Credentials(token=token, password=door.password, pairing_code=door.pairing_code)
        params = Connect(client=facts, auth=credentials)
        body = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        await socket.send(Request(id="connect", method="connect", params=body).model_dump_json(by_alias=True))
        async with asyncio.timeout(10):
            response = Response.model_validate_json(await socket.recv())
        if not response.ok or response.payload is None:
            raise ClientError(response.error or Failure.of(ErrorCode.INTERNAL, "The gateway gave no reason."))
        self._socket = socket
        self._on_hello(Hello.model_validate(response.payload))
        self._up.set()

    async def _read(self, socket: ClientConnection) -> None:
        async for text in socket:
            frame = json.loads(text)
            if frame.get("type") == "event":
                self._on_event(Event.model_validate(frame))
                continue
            future = self._waiting.get(frame.get("id", ""))
            if future is None or future.done():
                continue
            if frame.get("ok"):
                future.set_result(frame.get("payload") or {})
            else:
                future.set_exception(ClientError(Failure.model_validate(frame["error"])))

    def _lose(self) -> None:
        self._up.clear()
        self._socket = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LinkLost("The connection to the gateway was lost."))
