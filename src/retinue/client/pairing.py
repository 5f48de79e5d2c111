"""Asking a gateway for a token, as a device that has none."""

from __future__ import annotations

import platform
from collections.abc import Callable

from pydantic import ValidationError
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from retinue import __version__
from retinue.client.link import ClientError, Door
from retinue.core.errors import RetinueError, UsageError
from retinue.wire.events import PairingRequested
from retinue.wire.frames import ClientFacts, Connect, Credentials, Event, Failure, Hello, Request, Response
from retinue.wire.protocol import ErrorCode

IDENTITY = "connect"


async def ask_for_token(url: str, name: str, tell: Callable[[PairingRequested], None]) -> str:
    """Ask to be let in and wait for the owner; `tell` gets the code that a person must compare.

    Raises `ClientError` where the owner says no, and `RetinueError` where the gateway cannot be reached.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is not the address of a gateway. Write it like http://192.168.1.5:18790.")
    facts = ClientFacts(name=name[:100], version=__version__, platform=platform.system())
    params = Connect(client=facts, auth=Credentials(request_pairing=True))
    body = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    asked = Request(id=IDENTITY, method="connect", params=body)
    try:
        async with connect(Door(url, lambda: None).socket_url, compression=None, proxy=None, open_timeout=10) as socket:
            await socket.send(asked.model_dump_json(by_alias=True))
            while True:
                text = await socket.recv()
                event = _read_event(text)
                if event is None:
                    return _read_token(text)
                if event.event == "pairing.requested":
                    tell(PairingRequested.model_validate(event.payload))
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        raise RetinueError(f"The gateway at {url} did not answer: {error}. Is the address right?") from error


def _read_event(text: str | bytes) -> Event | None:
    try:
        return Event.model_validate_json(text)
    except ValidationError:
        return None


def _read_token(text: str | bytes) -> str:
    response = Response.model_validate_json(text)
    if not response.ok or response.payload is None:
        raise ClientError(response.error or Failure.of(ErrorCode.INTERNAL, "The gateway gave no reason."))
    token = Hello.model_validate(response.payload).token
    if token is None:
        raise RetinueError("The gateway lets everybody in, and gave no token. None is needed there.")
    return token
