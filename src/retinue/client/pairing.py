"""Request a token from a gateway, as a device that has none."""

from __future__ import annotations

import platform
from collections.abc import Callable

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from retinue import __version__
from retinue.client.link import ClientError, GatewayAddress
from retinue.core.errors import RetinueError, UsageError
from retinue.wire import codec
from retinue.wire.events import PairingRequested
from retinue.wire.frames import ClientFacts, Connect, Credentials, Event, Failure, Hello, Request, Response
from retinue.wire.protocol import ErrorCode

IDENTITY = "connect"


async def request_token(url: str, name: str, show: Callable[[PairingRequested], None]) -> str:
    """Request pairing and wait for the owner's decision; `show` gets the code that a person must compare.

    Raises `ClientError` if the owner rejects the device, and `RetinueError` if the gateway cannot be reached.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is not the address of a gateway. Use an address such as http://192.168.1.5:18790.")
    facts = ClientFacts(name=name[:100], version=__version__, platform=platform.system())
    params = Connect(client=facts, auth=Credentials(request_pairing=True))
    request = codec.encode(Request(id=IDENTITY, method="connect", params=codec.to_plain(params)))
    address = GatewayAddress(url, lambda: None)
    try:
        async with connect(address.socket_url, compression=None, proxy=None, open_timeout=10) as socket:
            await socket.send(request)
            while True:
                text = await socket.recv()
                event = _read_event(text)
                if event is None:
                    return _read_token(text)
                if event.event == "pairing.requested":
                    show(codec.convert(event.payload, PairingRequested))
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        raise RetinueError(f"The gateway at {url} did not respond: {error}. Check the address.") from error


def _read_event(text: str | bytes) -> Event | None:
    try:
        return codec.decode(text, Event)
    except msgspec.ValidationError:
        return None


def _read_token(text: str | bytes) -> str:
    response = codec.decode(text, Response)
    if not response.ok or response.payload is None:
        raise ClientError(response.error or Failure.of(ErrorCode.INTERNAL, "The gateway gave no reason."))
    token = codec.convert(response.payload, Hello).token
    if token is None:
        raise RetinueError("The gateway needs no authentication and issued no token.")
    return token
