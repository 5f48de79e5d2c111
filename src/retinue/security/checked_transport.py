"""HTTP transports that connect only to checked addresses.

Each request is resolved and checked, then sent to the checked address. Any client can use `CheckedTransport`, including
an SDK's. `CheckedPool` uses connections of its own (`http1.py`). The module needs the HTTP library, so it is imported
only when a request is made.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from typing import Any, TypeVar

import httpx2
from anyio.lowlevel import checkpoint_if_cancelled
from msgspec import Struct

from retinue.security.http1 import Http1Connection, NoResponse, ResponseParser
from retinue.security.network import Address, NetworkFailed, Policy, Resolve, find_addresses, port_of, resolve_host

R = TypeVar("R")
Origin = tuple[str, bytes, int]
Headers = Sequence[tuple[bytes, bytes]]

CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, OSError)
MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS, IDLE_SECONDS = 100, 20, 5.0


class Waits(Struct, frozen=True):
    """How long a request waits, in seconds: until it is connected, and for the next part of the response."""

    connect: float
    idle: float


@cache
def _tls_context(scheme: str) -> ssl.SSLContext:
    """Return the context for a scheme; only `https` pays for reading the system's certificates."""
    return httpx2.create_ssl_context(trust_env=False) if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@lru_cache(maxsize=64)
def _at(url: str, address: str) -> httpx2.URL:
    """Return a URL with the host replaced by an address; cached, because model endpoints are requested repeatedly."""
    return httpx2.URL(url).copy_with(host=address)


async def _send_to_first(addresses: Sequence[Address], send: Callable[[Address], Awaitable[R]]) -> R:
    """Send a request to the first address that accepts a connection."""
    *others, last = addresses
    for address in others:
        with suppress(*CONNECT_ERRORS):
            return await send(address)
    return await send(last)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to an address of its host that the policy allows.

    Connections are pooled per origin: a connection verified for one name is never used for another name at the same
    address.
    """

    def __init__(self, policy: Policy, resolve: Resolve = resolve_host, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._resolve = resolve
        self._tls = tls
        self._dialled: dict[Origin, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host = url.raw_host.decode("ascii")
        addresses = await find_addresses(host, port_of(url), self._policy, self._resolve)
        inner = self._transport_for(url)
        extensions = {**request.extensions, "sni_hostname": host.rstrip(".")}

        async def send(address: Address) -> httpx2.Response:
            pinned = httpx2.Request(
                request.method,
                _at(str(url), str(address)),
                headers=request.headers.raw,
                stream=request.stream,
                extensions=extensions,
            )
            return await inner.handle_async_request(pinned)

        return await _send_to_first(addresses, send)

    def _transport_for(self, url: httpx2.URL) -> httpx2.AsyncHTTPTransport:
        origin = url.scheme, url.raw_host, port_of(url)
        if origin not in self._dialled:
            tls = self._tls or _tls_context(url.scheme)
            self._dialled[origin] = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)
        return self._dialled[origin]

    async def aclose(self) -> None:
        dialled, self._dialled = self._dialled, {}
        for transport in dialled.values():
            await transport.aclose()


class CheckedPool:
    """Sends requests to checked addresses, without the layers of a client.

    A caller that needs no redirects, cookies, authentication or decompression saves most of the cost of a request.
    Connections are pooled per origin and address, so an address that is no longer one of the name is not used again.
    """

    def __init__(self, policy: Policy, resolve: Resolve = resolve_host, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._resolve = resolve
        self._tls = tls
        self._idle: dict[tuple[Origin, Address], list[Http1Connection]] = {}
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)

    async def post(self, url: httpx2.URL, headers: Headers, body: bytes, waits: Waits) -> PooledResponse:
        """Send a request and return its response, which the caller closes."""
        head = _format_head(url.raw_path, headers)
        host = url.raw_host.decode("ascii")
        origin = url.scheme, url.raw_host, port_of(url)
        addresses = await find_addresses(host, origin[2], self._policy, self._resolve)
        await self._places.acquire()
        try:
            # With a kept connection, nothing above waits: without this, a turn that was stopped would still send.
            await checkpoint_if_cancelled()
            kept = self._find_idle(origin, addresses)
            address, connection = kept or await self._dial(url, addresses, waits.connect)
            try:
                parser = await connection.send(head, body, waits.idle)
            except NoResponse:
                # A server may close a kept connection at the moment of its next use; llama.cpp's does so after every
                # stream, although it announces that it keeps the connection.
                if kept is None:
                    raise
                address, connection = await self._dial(url, addresses, waits.connect)
                parser = await connection.send(head, body, waits.idle)
        except BaseException:
            self._places.release()
            raise
        return PooledResponse(self, (origin, address), connection, parser, waits.idle)

    def take_back(self, place: tuple[Origin, Address], connection: Http1Connection) -> None:
        """Keep a connection whose response was read, if it can be used again."""
        self._places.release()
        if connection.release():
            idle = self._idle.setdefault(place, [])
            idle.append(connection)
            if len(idle) > MAX_IDLE_CONNECTIONS:
                idle.pop(0).close()

    def _find_idle(self, origin: Origin, addresses: Sequence[Address]) -> tuple[Address, Http1Connection] | None:
        for address in addresses:
            idle = self._idle.get((origin, address), [])
            while idle:
                connection = idle.pop()
                if connection.is_open and connection.idle_seconds < IDLE_SECONDS:
                    return address, connection
                connection.close()
        return None

    async def _dial(
        self, url: httpx2.URL, addresses: Sequence[Address], seconds: float
    ) -> tuple[Address, Http1Connection]:
        tls: dict[str, Any] = {}
        if url.scheme == "https":
            tls = {"ssl": self._tls or _tls_context("https"), "server_hostname": url.raw_host.decode().rstrip(".")}
        loop = asyncio.get_running_loop()

        async def connect(address: Address) -> tuple[Address, Http1Connection]:
            async with asyncio.timeout(seconds):
                _, made = await loop.create_connection(Http1Connection, str(address), port_of(url), **tls)
            return address, made

        return await _send_to_first(addresses, connect)

    async def aclose(self) -> None:
        kept, self._idle = self._idle, {}
        for connection in chain.from_iterable(kept.values()):
            connection.close()


class PooledResponse:
    """The response to a request; its connection goes back to the pool when it is closed."""

    def __init__(
        self,
        pool: CheckedPool,
        place: tuple[Origin, Address],
        connection: Http1Connection,
        parser: ResponseParser,
        seconds: float,
    ) -> None:
        assert parser.status is not None
        self.status = parser.status
        self.headers = parser.headers
        self._pool = pool
        self._place = place
        self._connection: Http1Connection | None = connection
        self._seconds = seconds

    async def receive(self) -> bytes:
        """Wait for the next part of the body; return nothing at its end."""
        return await self._connection.receive(self._seconds) if self._connection is not None else b""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.take_back(self._place, connection)


def _format_head(target: bytes, headers: Headers) -> bytes:
    lines = [b"POST %b HTTP/1.1" % target, *(b"%b: %b" % field for field in headers), b"", b""]
    head = b"\r\n".join(lines)
    if head.count(b"\r") != len(lines) - 1 or head.count(b"\n") != len(lines) - 1:
        raise NetworkFailed("A header of the request contains a line break.")
    return head
