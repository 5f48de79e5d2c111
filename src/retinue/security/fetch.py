"""HTTP requests that connect only to the checked address.

TLS and the Host header keep the host name. Each redirect is checked again. Proxy variables of the environment are
ignored. A few bytes of a compressed body can expand to gigabytes, so only formats with incremental output are
supported, and only one layer of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from retinue.security.network import (
    MAX_HEADER_BYTES,
    AddressRefused,
    NetworkFailed,
    Policy,
    Resolve,
    header_bytes,
    parse_url,
    port_of,
    resolve_host,
)

if TYPE_CHECKING:
    import httpx2
import zlib
from typing import Protocol

ACCEPTED = "gzip, deflate"


class DecompressionFailed(ValueError):
    """The body is damaged, or its compression is not supported."""


class Decompressor(Protocol):
    """Decompresses a body incrementally."""

    def feed(self, chunk: bytes, room: int) -> bytes:
        """Decompress the next piece, returning at most `room` bytes."""
        ...


class _Plain:
    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Zlib:
    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)

    def feed(self, chunk: bytes, room: int) -> bytes:
        if room <= 0 or self._inflate.eof:
            return b""  # data after the end would be kept, and copied again with every piece
        try:
            return self._inflate.decompress(chunk, room)
        except zlib.error as error:
            raise DecompressionFailed(f"its compression is damaged ({error})") from None


class _Deflate:
    """Deflate with or without a zlib header; the first bytes determine which."""

    def __init__(self) -> None:
        self._reader: _Zlib | None = None

    def feed(self, chunk: bytes, room: int) -> bytes:
        if self._reader is not None:
            return self._reader.feed(chunk, room)
        self._reader = _Zlib(zlib.MAX_WBITS)
        try:
            return self._reader.feed(chunk, room)
        except DecompressionFailed:
            self._reader = _Zlib(-zlib.MAX_WBITS)
            return self._reader.feed(chunk, room)


def make_decompressor(encoding: str) -> Decompressor:
    """Return the decompressor of a `Content-Encoding`; raise `DecompressionFailed` if it is not supported."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _Deflate()
        case other:
            raise DecompressionFailed(f"it is compressed as '{other}', which is not supported")


MAX_REDIRECTS = 3


class Fetched(Struct, frozen=True):
    """A complete response; `truncated` means that the body was longer than the limit."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    media_type: str
    charset: str | None = None
    truncated: bool = False


class Outgoing(Struct, frozen=True):
    """The method, headers and body of a request."""

    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


async def fetch(
    url: str,
    *,
    policy: Policy,
    max_bytes: int,
    timeout: float,
    send: Outgoing | None = None,
    resolve: Resolve = resolve_host,
    redirects: int = MAX_REDIRECTS,
) -> Fetched:
    """Fetch a URL under a policy, following at most `redirects` redirects.

    Raises `AddressRefused` if the policy forbids the request, and `NetworkFailed` if it fails.
    """
    import httpx2

    from retinue.security.checked_transport import CheckedTransport

    try:
        with anyio.fail_after(timeout):
            async with httpx2.AsyncClient(
                transport=CheckedTransport(policy, resolve), trust_env=False, follow_redirects=False, timeout=timeout
            ) as client:
                return await _follow(client, parse_url(url), send or Outgoing(), policy, max_bytes, redirects)
    except (TimeoutError, httpx2.TimeoutException):
        raise NetworkFailed(f"{url} did not answer completely within {timeout:g} seconds.") from None
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise NetworkFailed(f"{url} could not be read: {str(error) or type(error).__name__}.") from error


async def _follow(
    client: httpx2.AsyncClient, url: httpx2.URL, send: Outgoing, policy: Policy, cap: int, redirects: int
) -> Fetched:
    for _ in range(redirects + 1):
        headers = {"accept-encoding": ACCEPTED, **send.headers}
        request = client.build_request(send.method, url, headers=headers, content=send.body)
        response = await client.send(request, stream=True)
        try:
            location = response.headers.get("location") if response.is_redirect else None
            if location is None:
                return await _receive(response, cap)
        finally:
            await response.aclose()
        target = parse_url(str(url.join(location)))
        if _origin(target) != _origin(url):
            if not policy.leave_origin:
                raise AddressRefused(f"{url} redirects to another origin, {target}. Configure the final address.")
            send = _without_credentials(send)
        send = _redirected(send, response.status_code)
        url = target
    raise NetworkFailed(f"{url} redirects more than {redirects} times.")


def _origin(url: httpx2.URL) -> tuple[str, bytes, int]:
    return url.scheme, url.raw_host, port_of(url)


_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def _without_credentials(send: Outgoing) -> Outgoing:
    kept = {name: value for name, value in send.headers.items() if name.lower() in _HARMLESS_HEADERS}
    return Outgoing(send.method, kept, send.body)


def _redirected(send: Outgoing, status: int) -> Outgoing:
    """Return the redirected request: a form becomes a GET, as in browsers, unless the status forbids it."""
    if status in (307, 308) or send.method in ("GET", "HEAD"):
        return send
    headers = {name: value for name, value in send.headers.items() if name.lower() != "content-type"}
    return Outgoing("GET", headers)


async def _receive(response: httpx2.Response, cap: int) -> Fetched:
    if header_bytes(response.headers.raw) > MAX_HEADER_BYTES:
        raise NetworkFailed(f"{response.request.url} sends more than {MAX_HEADER_BYTES:,} bytes of headers.")
    body = bytearray()
    room = cap + cap // 100 + MAX_HEADER_BYTES  # compression makes incompressible data slightly longer
    try:
        inflater = make_decompressor(response.headers.get("content-encoding", ""))
        async for chunk in response.aiter_raw():
            body += inflater.feed(chunk, cap + 1 - len(body))
            room -= len(chunk)
            if len(body) > cap or room < 0:
                break
    except DecompressionFailed as error:
        raise NetworkFailed(f"{response.request.url} could not be read: {error}.") from None
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(
        url=str(response.request.url),
        status=response.status_code,
        headers=dict(response.headers.items()),
        body=bytes(body[:cap]),
        media_type=media_type,
        charset=response.charset_encoding,
        truncated=len(body) > cap or room < 0,
    )
