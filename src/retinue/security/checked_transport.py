"""HTTP transports that connect only to checked addresses.

Each request is resolved and checked, then sent to the checked address. Any client can use `CheckedTransport`, including
an SDK's. `CheckedPool` sends on the connections themselves. The module needs the HTTP library, so it is imported only
when a request is made.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import TypeVar

import httpcore2
import httpx2

from retinue.security.network import Address, Policy, Resolve, find_addresses, port_of, resolve_host

R = TypeVar("R")
Origin = tuple[str, bytes, int]
Headers = Sequence[tuple[bytes, bytes]]

CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpcore2.ConnectError, httpcore2.ConnectTimeout)
MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS, IDLE_SECONDS = 100, 20, 5.0


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


@lru_cache(maxsize=64)
def _target(url: httpx2.URL, address: str) -> httpcore2.URL:
    """Return where a request is sent; cached, because model endpoints are requested repeatedly."""
    return httpcore2.URL(scheme=url.raw_scheme, host=address, port=port_of(url), target=url.raw_path)


class CheckedPool:
    """Sends requests to checked addresses, without the layers of a client.

    A caller that needs no redirects, cookies, authentication or decompression saves half of the cost of a request.
    Connections are pooled as by `CheckedTransport`.
    """

    def __init__(self, policy: Policy, resolve: Resolve = resolve_host, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._resolve = resolve
        self._tls = tls
        self._dialled: dict[Origin, httpcore2.AsyncConnectionPool] = {}

    async def post(
        self, url: httpx2.URL, headers: Headers, body: bytes, timeouts: Mapping[str, float]
    ) -> httpcore2.Response:
        """Send a request and return its response, which the caller closes; `timeouts` are those of httpcore."""
        host = url.raw_host.decode("ascii")
        addresses = await find_addresses(host, port_of(url), self._policy, self._resolve)
        pool = self._pool_for(url)
        extensions = {"timeout": timeouts, "sni_hostname": host.rstrip(".")}

        async def send(address: Address) -> httpcore2.Response:
            target = _target(url, str(address))
            request = httpcore2.Request(b"POST", target, headers=headers, content=body, extensions=extensions)
            return await pool.handle_async_request(request)

        return await _send_to_first(addresses, send)

    def _pool_for(self, url: httpx2.URL) -> httpcore2.AsyncConnectionPool:
        origin = url.scheme, url.raw_host, port_of(url)
        if origin not in self._dialled:
            self._dialled[origin] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls or _tls_context(url.scheme),
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_IDLE_CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
            )
        return self._dialled[origin]

    async def aclose(self) -> None:
        dialled, self._dialled = self._dialled, {}
        for pool in dialled.values():
            await pool.aclose()
