"""The network proxy of sandboxes: an HTTP proxy in this process that checks every address.

A sandbox has an empty network namespace. The process that starts a program creates a listening socket on the loopback
of that namespace and passes its descriptor to the proxy, which accepts the programs' connections. A host is resolved
once, every address is checked, and the connection goes to one of them, as for web_fetch.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketListener, SocketStream
from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.security.network import (
    MODEL_CHOSEN,
    AddressRefused,
    NetworkFailed,
    Policy,
    Resolve,
    find_addresses,
    resolve_host,
)

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64_000
MAX_CONNECTIONS = 64
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 20.0
IDLE_SECONDS = 300.0
WEB_PORTS = (80, 443)
_CHUNK = 65_536
_BROKEN_OFF = (OSError, TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_HOP_BY_HOP = ("proxy-", "connection", "keep-alive", "host")


class BadRequest(RetinueError):
    """A malformed proxy request."""


class NetworkRules(Struct, frozen=True):
    """Where the programs of a sandbox may connect."""

    hosts: tuple[str, ...] = ()
    policy: Policy = MODEL_CHOSEN
    resolve: Resolve = resolve_host


class ProxyRequest(Struct, frozen=True):
    """A parsed request: a tunnel, or a plain request whose rewritten head is `forward`."""

    host: str
    port: int
    forward: bytes | None = None


def is_allowed(hosts: tuple[str, ...], host: str, port: int) -> bool:
    """Return whether the rules allow a host; only ports 80 and 443, unless an entry names another."""
    if not hosts:
        return port in WEB_PORTS
    return any(_matches(pattern.strip().lower(), host.rstrip(".").lower(), port) for pattern in hosts)


def _matches(pattern: str, host: str, port: int) -> bool:
    name, colon, number = pattern.rpartition(":")
    has_port = bool(colon) and number.isdecimal() and (":" not in name or name.endswith("]"))
    if port != int(number) if has_port else port not in WEB_PORTS:
        return False
    name = (name if has_port else pattern).strip("[]")
    return host.endswith(name[1:]) and host != name[1:] if name.startswith("*.") else host == name


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request; raise `BadRequest` if it is malformed."""
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        if method == "CONNECT":
            parsed = urlsplit(f"//{target}")
            port = parsed.port
        else:
            parsed = urlsplit(target)
            port = parsed.port or 80
    except ValueError:
        raise BadRequest("The request line is not a valid proxy request.") from None
    if not parsed.hostname or not port or parsed.username is not None or not version.startswith("HTTP/1."):
        raise BadRequest("The request has no host and port.")
    if method == "CONNECT":
        return ProxyRequest(parsed.hostname, port)
    if parsed.scheme != "http":
        raise BadRequest("Only http URLs are forwarded; use CONNECT for others.")
    path = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
    kept = [line for line in lines if line and not line.lower().startswith(_HOP_BY_HOP)]
    forward = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {parsed.netloc}", "Connection: close", *kept, "", ""])
    return ProxyRequest(parsed.hostname, port, forward.encode("latin-1"))


async def serve_network(proxy_socket: socket.socket, rules: NetworkRules) -> None:
    """Accept connections on every listening socket received through `proxy_socket`, until the other side closes it."""
    proxy_socket.setblocking(False)
    async with anyio.create_task_group() as tasks:
        with proxy_socket:
            while True:
                await anyio.wait_readable(proxy_socket)
                try:
                    received, descriptors, _, _ = socket.recv_fds(proxy_socket, 1, 1)
                except OSError:
                    break
                if not received:
                    break
                for descriptor in descriptors:
                    tasks.start_soon(_serve, socket.socket(fileno=descriptor), rules)
        tasks.cancel_scope.cancel()


async def _serve(listening: socket.socket, rules: NetworkRules) -> None:
    at_once = anyio.CapacityLimiter(MAX_CONNECTIONS)

    async def serve_client(client: SocketStream) -> None:
        async with at_once, client:
            try:
                await _serve_client(client, rules)
            except _BROKEN_OFF:
                log.debug("a connection of a sandbox was interrupted", exc_info=True)

    listener = await SocketListener.from_socket(listening)
    async with listener:
        await listener.serve(serve_client)


async def _serve_client(client: SocketStream, rules: NetworkRules) -> None:
    try:
        with anyio.fail_after(HEAD_SECONDS):
            head, rest = await _read_head(client)
        request = parse_request(head)
        upstream = await _connect(request, rules)
    except BadRequest as error:
        await _answer(client, "400 Bad Request", str(error))
    except AddressRefused as error:
        log.info("a sandbox was refused a connection: %s", error)
        await _answer(client, "403 Forbidden", str(error))
    except NetworkFailed as error:
        await _answer(client, "502 Bad Gateway", str(error))
    else:
        await _pass_on(request, rest, client, upstream)


async def _pass_on(request: ProxyRequest, rest: bytes, client: SocketStream, upstream: SocketStream) -> None:
    async with upstream:
        log.info("a sandbox connects to %s:%s", request.host, request.port)
        if request.forward is None:
            await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if request.forward or rest:
            await upstream.send((request.forward or b"") + rest)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_copy_bytes, client, upstream)
            await _copy_bytes(upstream, client)
            tasks.cancel_scope.cancel()


async def _read_head(client: SocketStream) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        if len(received) > MAX_HEAD_BYTES:
            raise BadRequest("The head of the request is too long.")
        received += await client.receive(_CHUNK)
    head, _, rest = received.partition(b"\r\n\r\n")
    return head, rest


async def _connect(request: ProxyRequest, rules: NetworkRules) -> SocketStream:
    if not is_allowed(rules.hosts, request.host, request.port):
        raise AddressRefused(f"{request.host}:{request.port} is not allowed in this sandbox; see sandbox.allowHosts.")
    addresses = await find_addresses(request.host, request.port, rules.policy, rules.resolve)
    for address in addresses:
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                return await anyio.connect_tcp(str(address), request.port)
        except (OSError, TimeoutError):
            continue
    raise NetworkFailed(f"{request.host}:{request.port} does not answer.")


async def _copy_bytes(source: SocketStream, target: SocketStream) -> None:
    """Copy bytes until the end of the stream, or until it is idle for too long."""
    with suppress(*_BROKEN_OFF):
        with anyio.move_on_after(IDLE_SECONDS) as patience:
            async for chunk in source:
                patience.deadline = anyio.current_time() + IDLE_SECONDS
                await target.send(chunk)
        await target.send_eof()


async def _answer(client: SocketStream, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    await client.send(f"{head}Connection: close\r\n\r\n".encode() + body)
