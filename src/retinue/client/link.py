"""The connection to a gateway: one WebSocket at a time, requests matched with their responses, events passed on."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from retinue import __version__
from retinue.core.clock import random_id
from retinue.core.errors import MessageTooLarge, RetinueError, UsageError
from retinue.wire import codec
from retinue.wire.frames import (
    ClientFacts,
    Connect,
    Credentials,
    Event,
    Failure,
    Hello,
    PairingRequested,
    Request,
    Response,
)
from retinue.wire.protocol import MAX_FRAME_BYTES, SOCKET_PATH, ErrorCode, Scope

log = logging.getLogger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.05, 5.0


class ClientError(RetinueError):
    """The gateway refused a request; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class LinkLost(RetinueError):
    """The connection ended before the response arrived."""


class GatewayAddress(Struct, frozen=True):
    """The URL of a gateway and the credentials for it.

    The token, and the URL if `moved` is set, are read again for each connection, because both may have changed.
    """

    url: str
    token: Callable[[], str | None]
    name: str = "retinue"
    pairing_code: str | None = None
    asks: bool = False
    password: str | None = None
    moved: Callable[[], str | None] | None = None
    scopes: tuple[Scope, ...] | None = None
    """Connect with these scopes of the token only."""

    @property
    def socket_url(self) -> str:
        url = (self.moved() if self.moved is not None else None) or self.url
        return url.replace("http", "ws", 1).rstrip("/") + SOCKET_PATH

    def explain_unreachable(self) -> str:
        """What a person can do if the gateway does not respond."""
        if self.moved is not None:
            return (
                "The gateway cannot be reached. See `retinue gateway status`, or start it with `retinue gateway start`."
            )
        return f"The gateway at {self.url} cannot be reached. Check the address, and whether it is running."


class GatewayLink:
    """A connection that is renewed until it is closed or the gateway refuses it.

    A remote gateway must be reachable at first: a wrong address should be reported at once.
    """

    def __init__(
        self, address: GatewayAddress, on_event: Callable[[Event], None], on_hello: Callable[[Hello], None]
    ) -> None:
        self._address = address
        self._on_event = on_event
        self._on_hello = on_hello
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._socket: ClientConnection | None = None
        self._up = asyncio.Event()
        self._refused: RetinueError | None = None
        self._was_connected = False
        self._max_frame_bytes = MAX_FRAME_BYTES

    async def run(self) -> None:
        """Stay connected until cancelled, or until the gateway refuses the connection."""
        pause = FIRST_PAUSE
        while self._refused is None:
            try:
                async with connect(
                    self._address.socket_url,
                    max_size=MAX_FRAME_BYTES * 4,
                    compression=None,
                    proxy=None,
                    open_timeout=10,
                ) as socket:
                    await self._connect(socket)
                    pause = FIRST_PAUSE
                    await self._read(socket)
            except ClientError as error:
                if not error.failure.retryable:
                    self._refused = error
            except (OSError, WebSocketException, TimeoutError, ValueError) as error:
                log.debug("the gateway cannot be reached: %s", error)
                if not self._was_connected and self._address.moved is None:
                    self._refused = RetinueError(self._address.explain_unreachable())
            finally:
                self._lose()
            if self._refused is None:
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE)
        self._up.set()

    async def request(self, method: str, params: dict[str, Any], patience: float) -> dict[str, Any]:
        """Send a request as soon as there is a connection, and wait for the response."""
        async with asyncio.timeout(patience):
            await self._up.wait()
        if self._refused is not None:
            raise self._refused
        socket = self._socket
        if socket is None:
            raise LinkLost("The connection to the gateway was lost.")
        identity = random_id()
        frame = codec.encode(Request(id=identity, method=method, params=params))
        size = len(frame.encode("utf-8", "surrogatepass"))
        if size > self._max_frame_bytes:
            raise MessageTooLarge(
                f"The request is too large: it has {size:,} bytes, and {self._max_frame_bytes:,} bytes are allowed. "
                "Send fewer or smaller pictures, or less text."
            )
        future = self._waiting[identity] = asyncio.get_running_loop().create_future()
        try:
            await socket.send(frame)
            answer: dict[str, Any] = await future
            return answer
        except ConnectionClosed:
            raise LinkLost("The connection to the gateway was lost.") from None
        finally:
            self._waiting.pop(identity, None)
            if future.done() and not future.cancelled():
                future.exception()  # retrieved, because the connection may be lost while the request is being sent

    async def drop(self) -> None:
        """Abort the connection, as a network failure would."""
        if self._socket is not None:
            self._socket.transport.abort()
            await self._socket.wait_closed()

    async def _connect(self, socket: ClientConnection) -> None:
        address = self._address
        token = address.token() if address.pairing_code is None else None
        facts = ClientFacts(name=address.name, version=__version__, platform=platform.system(), asks=address.asks)
        credentials = Credentials(token=token, password=address.password, pairing_code=address.pairing_code)
        params = Connect(client=facts, auth=credentials, scopes=address.scopes or UNSET)
        await socket.send(codec.encode(Request(id="connect", method="connect", params=codec.to_plain(params))))
        async with asyncio.timeout(10):
            hello = _read_hello(await socket.recv())
        self._socket = socket
        self._was_connected = True
        self._max_frame_bytes = hello.policy.max_frame_bytes
        self._on_hello(hello)
        self._up.set()

    async def _read(self, socket: ClientConnection) -> None:
        async for text in socket:
            frame = codec.read_json(text)
            if frame.get("type") == "event":
                self._on_event(codec.convert(frame, Event))
                continue
            future = self._waiting.get(frame.get("id", ""))
            if future is None or future.done():
                continue
            if frame.get("ok"):
                future.set_result(frame.get("payload") or {})
            else:
                future.set_exception(ClientError(codec.convert(frame["error"], Failure)))

    def _lose(self) -> None:
        self._up.clear()
        self._socket = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LinkLost("The connection to the gateway was lost."))


async def request_token(url: str, name: str, show: Callable[[PairingRequested], None]) -> str:
    """Request pairing and wait for the owner's decision; `show` gets the code that a person must compare.

    Raises `ClientError` if the owner rejects the device, and `RetinueError` if the gateway cannot be reached.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is not the address of a gateway. Use an address such as http://192.168.1.5:18790.")
    facts = ClientFacts(name=name[:100], version=__version__, platform=platform.system())
    params = Connect(client=facts, auth=Credentials(request_pairing=True))
    request = codec.encode(Request(id="connect", method="connect", params=codec.to_plain(params)))
    address = GatewayAddress(url, lambda: None)
    try:
        async with connect(address.socket_url, compression=None, proxy=None, open_timeout=10) as socket:
            await socket.send(request)
            while True:
                text = await socket.recv()
                frame = codec.read_json(text)
                if not isinstance(frame, dict) or frame.get("type") != "event":
                    break
                event = codec.convert(frame, Event)
                if event.event == "pairing.requested":
                    show(codec.convert(event.payload, PairingRequested))
            token = _read_hello(text).token
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        raise RetinueError(f"The gateway at {url} did not respond: {error}. Check the address.") from error
    if token is None:
        raise RetinueError("The gateway needs no authentication and issued no token.")
    return token


def _read_hello(text: str | bytes) -> Hello:
    """The result of `connect`; raises `ClientError` if the gateway refused it."""
    response = codec.decode(text, Response)
    if not response.ok or response.payload is None:
        raise ClientError(response.error or Failure.of(ErrorCode.INTERNAL, "The gateway gave no reason."))
    return codec.convert(response.payload, Hello)
