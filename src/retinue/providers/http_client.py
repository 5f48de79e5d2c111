"""HTTP clients with the network policy for configured endpoints: `EndpointClient` for model calls, httpx for the rest.

An endpoint may be private, but never link-local or a cloud metadata service, and redirects are not followed. A client
connects only to the checked address; proxy variables of the environment are ignored. Responses are limited in size and
must be UTF-8; a body that violates this ends the call.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from functools import lru_cache

import httpx2

from retinue import __version__
from retinue.core.errors import ConfigError
from retinue.core.model import Failure
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.security.checked_transport import CheckedPool, CheckedTransport, PooledResponse, Waits
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
# With an identity encoding, the limits apply to the content, not to compressed data.
COMMON_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": f"retinue/{__version__}"}


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
        headers={**COMMON_HEADERS, **(headers or {})},
        event_hooks={"response": [_bound_headers, _bound_body] if text else [_bound_headers]},
    )


class EventParser:
    """Parses a stream of server-sent events. Of their fields, only `data` is used."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._data: list[str] = []
        self._after_return = False

    def feed(self, text: str) -> list[str]:
        """Add the next part of the stream; return the data of each event that is complete."""
        if self._after_return:
            text = text.removeprefix("\n")  # the second half of a line end
        self._after_return = text.endswith("\r")
        first, *rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line.append(first)
        found = []
        for following in rest:
            line = "".join(self._line)
            self._line = [following]
            if line:
                self._read_line(line)
            elif self._data:
                found.append("\n".join(self._data))
                self._data = []
        return found

    def _read_line(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))


class EndpointResponse:
    """The response to a request. It is closed at the end of its block; its headers are in lower case."""

    def __init__(self, response: PooledResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> EndpointResponse:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response.close()

    async def read(self) -> str:
        """Return the whole body."""
        limits = BodyLimits()
        texts = []
        while chunk := await self._response.receive():
            texts.append(limits.measure(chunk))
        return "".join(texts)

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the data of each event of a stream of server-sent events."""
        limits, parser = BodyLimits(), EventParser()
        while chunk := await self._response.receive():
            for data in parser.feed(limits.measure(chunk)):
                yield data


class EndpointClient:
    """Sends the requests of an adapter to its endpoint. Connections are kept until it is closed.

    It applies the same rules as `open_client`, at half of the cost of a request.
    """

    def __init__(self, timeouts: Timeouts, headers: Mapping[str, str] | None = None) -> None:
        self._timeouts = timeouts
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._pool = CheckedPool(OPERATOR)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], seconds: float | None = None
    ) -> EndpointResponse:
        """Send JSON; the response must be used in an `async with` block. `seconds` replaces the idle time."""
        wait = seconds or self._timeouts.idle
        parsed = _parse(url)
        framing = {"host": parsed.netloc.decode("ascii"), "content-length": str(len(body))}
        merged = {**framing, **COMMON_HEADERS, **self._headers, **headers}
        sent = [(name.encode(), value.encode()) for name, value in merged.items()]
        try:
            response = await self._pool.post(parsed, sent, body, Waits(self._timeouts.connect, wait))
        except NetworkFailed as failure:
            raise CallFailed(Failure.CONNECTION, str(failure)) from None
        given = EndpointResponse(response)
        try:
            _check_headers(response.headers, given.headers.get("content-encoding"))
        except CallFailed:
            response.close()
            raise
        return given

    async def aclose(self) -> None:
        await self._pool.aclose()


@lru_cache(maxsize=64)
def _parse(url: str) -> httpx2.URL:
    return httpx2.URL(url)


class EndpointTransport(CheckedTransport):
    """Connects only to checked addresses; a refusal fails the call like any other connection error."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except NetworkFailed as failure:
            raise CallFailed(Failure.CONNECTION, str(failure)) from None


async def _bound_headers(response: httpx2.Response) -> None:
    _check_headers(response.headers.raw, response.headers.get("content-encoding"))


def _check_headers(headers: Iterable[tuple[bytes, bytes]], encoding: str | None) -> None:
    if header_bytes(headers) > MAX_HEADER_BYTES:
        raise CallFailed(Failure.SERVER, f"the endpoint sent more than {MAX_HEADER_BYTES} bytes of headers")
    if encoding is not None and encoding.lower() != "identity":
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

    def measure(self, chunk: bytes) -> str:
        """Check the next part of the body and return its text."""
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
            return self._decoder.decode(chunk)
        except UnicodeDecodeError:
            raise CallFailed(Failure.SERVER, "the endpoint sent bytes that are not UTF-8") from None
