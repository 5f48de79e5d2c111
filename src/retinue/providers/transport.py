"""The HTTP client that every adapter uses, with the rules for endpoints that the operator configured.

An endpoint may be private, but never link-local or a cloud's metadata service, and it cannot redirect us elsewhere.
The address is checked on the connection that carries the request, so no second look-up can differ from the first.
What comes back is bounded and must be UTF-8; a body that breaks this ends the call.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from retinue import __version__
from retinue.core.errors import ConfigError
from retinue.core.model import Failure
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.security.addresses import Zone, classify, parse_address

LONGEST_LINE = 8 * 1024 * 1024
LONGEST_BODY = 64 * 1024 * 1024


def check_endpoint(url: str) -> str:
    """The address without a trailing slash; raises `ConfigError` where it can never be used."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"'{url}' is not the address of a model endpoint. It starts with http:// or https://.")
    if parts.username or parts.password:
        raise ConfigError("The address of a model endpoint cannot hold a password; set `apiKey` or `headers` instead.")
    if is_forbidden(parts.hostname):
        raise ConfigError(
            f"'{parts.hostname}' is a link-local, reserved or metadata address; a model endpoint cannot be there."
        )
    return url.rstrip("/")


def is_forbidden(host: str) -> bool:
    """Whether a numeric address is link-local, reserved or a metadata service; a name is not decided here."""
    try:
        address = parse_address(host)
    except ValueError:
        return True
    return address is not None and classify(address) is Zone.FORBIDDEN


def open_client(
    timeouts: Timeouts, headers: Mapping[str, str] | None = None, *, text: bool = True
) -> httpx2.AsyncClient:
    """A client for one endpoint; whoever opens it closes it. Without `text` the bodies may be of any kind and size."""
    return httpx2.AsyncClient(
        follow_redirects=False,
        timeout=httpx2.Timeout(timeouts.idle, connect=timeouts.connect),
        # An identity encoding makes the limits below hold for what is read, not for what was compressed.
        headers={"User-Agent": f"retinue/{__version__}", "Accept-Encoding": "identity", **(headers or {})},
        event_hooks={"request": [_watch_connection], "response": [_bound_body] if text else []},
    )


async def _watch_connection(request: httpx2.Request) -> None:
    request.extensions = {**request.extensions, "trace": _refuse_forbidden_peer}


async def _refuse_forbidden_peer(event: str, info: Mapping[str, Any]) -> None:
    if event != "connection.connect_tcp.complete":
        return
    peer = info["return_value"].get_extra_info("server_addr")
    if peer and is_forbidden(str(peer[0])):
        await info["return_value"].aclose()
        raise CallFailed(
            Failure.CONNECTION, f"the endpoint's name leads to {peer[0]}, a link-local or metadata address"
        )


async def _bound_body(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        gauge = BodyGauge()
        async for chunk in self._inner:
            gauge.measure(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BodyGauge:
    """Measures a body as it arrives; raises `CallFailed` at the first byte that breaks a rule."""

    def __init__(self, longest_line: int = LONGEST_LINE, longest_body: int = LONGEST_BODY) -> None:
        self._longest_line = longest_line
        self._longest_body = longest_body
        self._line = 0
        self._body = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def measure(self, chunk: bytes) -> None:
        self._body += len(chunk)
        if self._body > self._longest_body:
            raise CallFailed(Failure.SERVER, f"the endpoint sent more than {self._longest_body} bytes")
        first, *rest = chunk.split(b"\n")
        self._line += len(first)
        if max(self._line, *map(len, rest), 0) > self._longest_line:
            raise CallFailed(Failure.SERVER, f"the endpoint sent a line of more than {self._longest_line} bytes")
        if rest:
            self._line = len(rest[-1])
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError:
            raise CallFailed(Failure.SERVER, "the endpoint sent bytes that are not UTF-8") from None
