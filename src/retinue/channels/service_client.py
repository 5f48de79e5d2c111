"""HTTP and WebSocket connections to chat services.

They follow the network policy for configured endpoints. An error says whether the service may have taken the request:
then it must not be repeated without looking.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from retinue import __version__
from retinue.channels.channel import DeliveryFailed
from retinue.security.checked_transport import CheckedTransport
from retinue.security.network import OPERATOR, AddressRefused, NetworkFailed, find_addresses, resolve_host

CONNECT_SECONDS, IDLE_SECONDS = 15.0, 30.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_FRAME_BYTES = 16 * 1024 * 1024
FIRST_PAUSE, MAX_PAUSE = 0.5, 60.0

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Upload(Struct, frozen=True):
    """A file of a form."""

    name: str
    data: bytes
    media_type: str


class ServiceReply(Struct, frozen=True):
    """A response of a service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as an object; an empty one if it is none, as an error page of a proxy."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {"list": found} if isinstance(found, list) else {}

    @property
    def retry_after(self) -> float | None:
        """The seconds of the header `Retry-After`."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "")))
        except ValueError:
            return None


class ServiceClient:
    """Sends requests to one service; used from one event loop."""

    def __init__(self, base: str, headers: Mapping[str, str] | None = None) -> None:
        self._base = base.rstrip("/")
        self._headers = {"user-agent": f"Retinue/{__version__}", **(headers or {})}
        self._client: httpx2.AsyncClient | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        data: Any = None,
        form: Mapping[str, str] | None = None,
        files: Mapping[str, Upload] | None = None,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = IDLE_SECONDS,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> ServiceReply:
        """Send a request and return the response, whatever its status; raise `DeliveryFailed` if there is none."""
        client = self._open()
        uploads = {name: (each.name, each.data, each.media_type) for name, each in (files or {}).items()}
        url = path if path.startswith(("http://", "https://")) else f"{self._base}/{path.lstrip('/')}"
        foreign = not url.startswith(self._base + "/")
        try:
            request = client.build_request(
                method,
                url,
                params=dict(query) if query else None,
                json=data,
                data=dict(form) if form else None,
                files=uploads or None,
                content=content,
                headers={**({} if foreign else self._headers), **(headers or {})},
                timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
            )
            response = await client.send(request, stream=True)
            try:
                return ServiceReply(response.status_code, response.headers, await _read(response, max_bytes))
            finally:
                await response.aclose()
        except (AddressRefused, httpx2.InvalidURL) as error:
            raise DeliveryFailed(str(error), final=True) from error
        except (NetworkFailed, *_NOT_SENT) as error:
            raise DeliveryFailed(f"{_host(url)} cannot be reached: {_why(error)}.") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise DeliveryFailed(f"{_host(url)} did not answer: {_why(error)}.", uncertain=True) from None

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                transport=CheckedTransport(OPERATOR), trust_env=False, follow_redirects=False
            )
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise DeliveryFailed(f"the answer is larger than {max_bytes:,} bytes", final=True)
    return bytes(body)


async def open_socket(url: str, headers: Mapping[str, str] | None = None) -> ClientConnection:
    """Open a WebSocket to a checked address; raise `DeliveryFailed` if that fails."""
    try:
        parsed = httpx2.URL(url)
        host, secure = parsed.host, parsed.scheme == "wss"
        port = parsed.port or (443 if secure else 80)
        address, *_ = await find_addresses(host, port, OPERATOR, resolve_host)
        with anyio.fail_after(CONNECT_SECONDS):
            return await connect(
                url,
                host=str(address),
                port=port,
                proxy=None,
                max_size=MAX_FRAME_BYTES,
                additional_headers=dict(headers or {}),
                user_agent_header=f"Retinue/{__version__}",
            )
    except AddressRefused as error:
        raise DeliveryFailed(str(error), final=True) from error
    except (NetworkFailed, OSError, TimeoutError, httpx2.InvalidURL) as error:
        raise DeliveryFailed(f"{_host(url)} cannot be reached: {_why(error)}.") from None
    except WebSocketException as error:
        raise DeliveryFailed(f"{_host(url)} refused the connection: {error}.") from None


class Backoff:
    """Growing pauses between attempts to reach a service."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311 - pauses, not secrets
        self._pause = FIRST_PAUSE

    def reset(self) -> None:
        self._pause = FIRST_PAUSE

    async def wait(self, at_least: float | None = None) -> None:
        """Wait longer than the last time, and at least as long as the service asked for."""
        pause, self._pause = self._pause, min(self._pause * 2, MAX_PAUSE)
        await anyio.sleep(max(at_least or 0.0, pause * self._chance.uniform(0.5, 1.0)))


def _why(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _host(url: str) -> str:
    """Return the host of an address: the rest can contain a token."""
    try:
        return httpx2.URL(url).host or "the service"
    except httpx2.InvalidURL:
        return "the service"
