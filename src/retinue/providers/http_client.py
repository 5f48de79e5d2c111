"""The HTTP client of all adapters, with the network policy for configured endpoints.

An endpoint may be private, but never link-local or a cloud metadata service, and redirects are not followed. The client
connects only to the checked address; proxy variables of the environment are ignored. Responses are limited in size and
must be UTF-8; a body that violates this ends the call.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping

import httpx2

from retinue import __version__
from retinue.core.errors import ConfigError
from retinue.core.model import Failure
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.security.checked_transport import CheckedTransport
from retinue.security.network import (
    MAX_HEADER_BYTES,
    OPERATOR,
    AddressRefused,
    NetworkFailed,
    check_address,
    check_host,
    header_bytes,
    parse_url,
)

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


def check_endpoint(url: str) -> str:
    """Return the address without a trailing slash; raise `ConfigError` if it can never be used."""
    try:
        parsed = parse_url(url)
        host = parsed.raw_host.decode("ascii")
        address = check_host(host, OPERATOR)
        if address is not None:
            check_address(host, address, OPERATOR)
    except AddressRefused as refusal:
        raise ConfigError(
            f"{refusal} Set the address of the model endpoint; a key belongs in `apiKey` or `headers`."
        ) from None
    return url.rstrip("/")


def open_client(
    timeouts: Timeouts, headers: Mapping[str, str] | None = None, *, text: bool = True
) -> httpx2.AsyncClient:
    """Return a client for one endpoint; the caller closes it. Without `text`, any type and size of body is accepted."""
    return httpx2.AsyncClient(
        transport=EndpointTransport(OPERATOR),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(timeouts.idle, connect=timeouts.connect),
        # With an identity encoding, the limits below apply to the content, not to compressed data.
        headers={"User-Agent": f"retinue/{__version__}", "Accept-Encoding": "identity", **(headers or {})},
        event_hooks={"response": [_bound_headers, _bound_body] if text else [_bound_headers]},
    )


class EndpointTransport(CheckedTransport):
    """Connects only to checked addresses; a refusal fails the call like any other connection error."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except NetworkFailed as failure:
            raise CallFailed(Failure.CONNECTION, str(failure)) from None


async def _bound_headers(response: httpx2.Response) -> None:
    if header_bytes(response) > MAX_HEADER_BYTES:
        raise CallFailed(Failure.SERVER, f"the endpoint sent more than {MAX_HEADER_BYTES} bytes of headers")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise CallFailed(Failure.SERVER, "the endpoint compressed its answer although the request did not allow it")


async def _bound_body(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        gauge = BodyLimits()
        async for chunk in self._inner:
            gauge.measure(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BodyLimits:
    """Checks a body as it arrives; raises `CallFailed` at the first byte that violates a limit."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._max_body_bytes = max_body_bytes
        self._line = 0
        self._body = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def measure(self, chunk: bytes) -> None:
        self._body += len(chunk)
        if self._body > self._max_body_bytes:
            raise CallFailed(Failure.SERVER, f"the endpoint sent more than {self._max_body_bytes} bytes")
        first, *rest = chunk.split(b"\n")
        self._line += len(first)
        if max(self._line, *map(len, rest), 0) > self._max_line_bytes:
            raise CallFailed(Failure.SERVER, f"the endpoint sent a line of more than {self._max_line_bytes} bytes")
        if rest:
            self._line = len(rest[-1])
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError:
            raise CallFailed(Failure.SERVER, "the endpoint sent bytes that are not UTF-8") from None
