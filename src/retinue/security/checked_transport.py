"""An HTTP transport that connects only to checked addresses.

Any client can use it, including an SDK's: each request is resolved and checked, then sent to the checked address. The
module needs the HTTP library, so it is imported only when a request is made.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import cache, lru_cache

import httpx2

from retinue.security.network import Policy, Resolve, find_addresses, port_of, resolve_host


@cache
def _tls_context(scheme: str) -> ssl.SSLContext:
    """Return the context for a scheme; only `https` pays for reading the system's certificates."""
    return httpx2.create_ssl_context(trust_env=False) if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@lru_cache(maxsize=64)
def _at(url: str, address: str) -> httpx2.URL:
    """Return a URL with the host replaced by an address; cached, because model endpoints are requested repeatedly."""
    return httpx2.URL(url).copy_with(host=address)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to an address of its host that the policy allows.

    Connections are pooled per origin: a connection verified for one name is never used for another name at the same
    address.
    """

    def __init__(self, policy: Policy, resolve: Resolve = resolve_host, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._resolve = resolve
        self._tls = tls
        self._dialled: dict[tuple[str, bytes, int], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host = url.raw_host.decode("ascii")
        addresses = await find_addresses(host, port_of(url), self._policy, self._resolve)
        inner = self._transport_for(url)
        extensions = {**request.extensions, "sni_hostname": host.rstrip(".")}
        *others, last = (
            httpx2.Request(
                request.method,
                _at(str(url), str(address)),
                headers=request.headers.raw,
                stream=request.stream,
                extensions=extensions,
            )
            for address in addresses
        )
        for pinned in others:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await inner.handle_async_request(pinned)
        return await inner.handle_async_request(last)

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
