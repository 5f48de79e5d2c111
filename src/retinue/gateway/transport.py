"""The listening socket, and the server's protocol classes for HTTP and WebSockets."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
from collections.abc import Callable
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request
from websockets.protocol import State

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import ConfigError, RetinueError
from retinue.gateway.auth.request_source import is_loopback
from retinue.wire import codec
from retinue.wire.frames import Failure
from retinue.wire.protocol import MAX_FRAME_BYTES, CloseCode, ErrorCode

log = logging.getLogger(__name__)

ABORT = "retinue.abort"
"""The key in the scope's extensions under which the server puts the function that cuts a connection off."""
ADMIT = "retinue.admit"
"""The key of the function that ends the limit on what a client may send before it is authenticated."""
IDLE_SECONDS = 60
DISCARD_SECONDS = 1.0
"""After a frame that is too large, how long a client may be silent before the connection is closed."""
MAX_DISCARD_SECONDS = 10.0
BACKLOG = 2048
MAX_ACCEPTED_AT_ONCE = 64
"""How many connections are accepted before the event loop does other work."""
FIRST_ACCEPT_PAUSE, MAX_ACCEPT_PAUSE = 0.05, 1.0
"""Seconds until the next attempt after a connection could not be accepted."""
RESERVED_DESCRIPTORS = 32
"""Descriptors that connections leave to the database, the log, models and tools."""
MAX_GATHERED_BYTES = 64 * 1024
SLOW_HEADERS = Failure.of(ErrorCode.TIMED_OUT, "The headers were not sent in time (gateway.http.headerTimeoutMs).")
_SLOW_HEADERS_BODY = f'{{"error":{codec.encode(SLOW_HEADERS)}}}'.encode()
_SLOW_HEADERS_RESPONSE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_SLOW_HEADERS_BODY), _SLOW_HEADERS_BODY)
)
TAILNET = ipaddress.ip_network("100.64.0.0/10")
TAILNET_NAME_SERVER = "100.100.100.100"


def choose_host(settings: GatewaySettings) -> str:
    """The address to listen on; raises `ConfigError` if others could reach it without authentication."""
    proxy = settings.auth.trusted_proxy
    match settings.bind:
        case "loopback" | "auto":
            host = "127.0.0.1"
        case "lan":
            host = "0.0.0.0"  # noqa: S104 - the owner configured it, and auth is required below
        case "custom":
            if settings.custom_bind_host is None:
                raise ConfigError("gateway.bind is 'custom' without an address. Set gateway.customBindHost.")
            host = settings.custom_bind_host
        case "tailnet":
            host = find_tailnet_address()
    if settings.auth.mode == "trusted-proxy" and not (settings.trusted_proxies and proxy.user_header):
        raise ConfigError(
            "gateway.auth.mode is 'trusted-proxy' and no proxy is trusted. Set gateway.trustedProxies and "
            "gateway.auth.trustedProxy.userHeader."
        )
    if settings.auth.mode == "password" and settings.auth.password is None:
        raise ConfigError("gateway.auth.mode is 'password' and there is no password. Set gateway.auth.password.")
    if settings.auth.mode == "none" and host != "localhost" and not is_loopback(host):
        raise ConfigError(
            f"The gateway would listen on {host} without authentication. Set gateway.auth.mode to 'token', or "
            "gateway.bind to 'loopback'."
        )
    return host


def find_tailnet_address() -> str:
    """This machine's address in its tailnet: the source address of packets to the tailnet's name server.

    Connecting a UDP socket sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((TAILNET_NAME_SERVER, 53))
            own = str(probe.getsockname()[0])
        except OSError:
            own = ""
    if own and ipaddress.ip_address(own) in TAILNET:
        return own
    raise ConfigError(
        "gateway.bind is 'tailnet' and this machine has no tailnet address. Start Tailscale, or set gateway.bind to "
        "'loopback'."
    )


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; raises `RetinueError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named as TCP.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        todo = (
            "Set gateway.customBindHost to an address of this machine."
            if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)
            else "Stop the program that uses the port, or choose another with --port or gateway.port."
        )
        raise RetinueError(f"The gateway cannot listen on {host}:{port}: {error.strerror}. {todo}") from error
    opened.setblocking(False)
    return opened


def address_of(opened: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a client cannot connect to it
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ConnectionAcceptor:
    """Accepts connections, and pauses if the process has too few descriptors or too little memory for another one.

    The servers of the event loops do not: that of asyncio repeats a failed attempt thousands of times a second, that of
    uvloop closes new connections or the listening socket. A connection that waits here is accepted later.
    """

    def __init__(self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._pause = FIRST_ACCEPT_PAUSE
        self._is_exhausted = False
        self._waiting: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        self.failures = 0
        """How many attempts have failed."""

    def start(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more connections; the socket stays open."""
        self._loop.remove_reader(self._listening)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                _check_free_descriptors()
                connection, _address = self._listening.accept()
                connection.setblocking(False)
                opening = self._loop.create_task(self._open(connection))
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                if self._is_exhausted:
                    self._is_exhausted = False
                    log.info("no connection waits any more")
                return
            except (OSError, MemoryError) as error:
                self._wait(error)
                return
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            self._pause = FIRST_ACCEPT_PAUSE

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except (OSError, MemoryError) as error:
            log.warning("a new connection was closed: %r", error)
            connection.close()

    def _wait(self, error: OSError | MemoryError) -> None:
        self.failures += 1
        self._loop.remove_reader(self._listening)
        self._waiting = self._loop.call_later(self._pause, self._resume)
        self._pause = min(self._pause * 2, MAX_ACCEPT_PAUSE)
        if not self._is_exhausted:
            self._is_exhausted = True
            log.warning(
                "new connections must wait: %r. Close clients, or raise the limit of open files (`ulimit -n`, "
                "LimitNOFILE= of a systemd service) or of memory",
                error,
            )

    def _resume(self) -> None:
        self._waiting = None
        self._loop.add_reader(self._listening, self._accept)
        self._accept()


def _check_free_descriptors() -> None:
    """Raise `OSError` if a connection would use one of the reserved descriptors.

    The system assigns the lowest free number, so a new number shows how many are in use.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(number)
    if limit != resource.RLIM_INFINITY and number >= limit - min(RESERVED_DESCRIPTORS, limit // 4):
        raise OSError(errno.EMFILE, f"{number} of {limit} file descriptors are in use")


class HttpProtocol(H11Protocol):
    """HTTP with an idle limit from the start, and a limit on the time from the first byte of a request to its body.

    The second limit does not start again with each byte, so that a client cannot hold a connection by sending its
    headers slowly.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], header_seconds: float
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._header_seconds = header_seconds
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheredWrites(transport, self.loop))
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_SECONDS, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or self.transport.get_protocol() is not self:
            self._stop_header_timer()
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self._header_seconds, self._refuse_slow_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        self._stop_header_timer()
        super().connection_lost(exc)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse_slow_headers(self) -> None:
        self.transport.write(_SLOW_HEADERS_RESPONSE)
        self.transport.close()


class SocketProtocol(WebSocketsSansIOProtocol):
    """WebSockets that can be aborted: closing waits for a client that does not read, aborting does not.

    After a frame that is too large, what the client still sends is discarded for a while. If the connection was closed
    at once, the system would reset it and the client would not receive the close frame with the reason.
    """

    _discard_until: float | None = None
    _unauthenticated_bytes: int | None = 0

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT] = self.transport.abort
            extensions[ADMIT] = self._admit

    def _admit(self) -> None:
        self._unauthenticated_bytes = None

    def data_received(self, data: bytes) -> None:
        if self._discard_until is not None:
            self._close_when_silent()
            return
        if self._unauthenticated_bytes is not None:
            self._unauthenticated_bytes += len(data)
            if self._unauthenticated_bytes > MAX_FRAME_BYTES and self.conn.state is State.OPEN:
                self.conn.fail(CloseCode.TOO_BIG, "too much data before the response to connect")
                self.handle_parser_exception()
                return
        super().data_received(data)

    def handle_parser_exception(self) -> None:
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._discard_until = self.loop.time() + MAX_DISCARD_SECONDS
        self._close_when_silent()

    def _close_when_silent(self) -> None:
        assert self._discard_until is not None
        if self.close_timer is not None:
            self.close_timer.cancel()
        later = min(DISCARD_SECONDS, max(0.0, self._discard_until - self.loop.time()))
        self.close_timer = self.loop.call_later(later, self.transport.close)


class GatheredWrites(asyncio.Transport):
    """A transport that sends everything written in one iteration of the event loop at once.

    Each write wakes the reader, which costs more than its content: the head and the body of a response, or the frames
    of a burst, are better sent together.
    """

    def __init__(self, connection: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._connection = connection
        self._loop = loop
        self._gathered: list[bytes | bytearray | memoryview[Any]] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not data:
            return
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= MAX_GATHERED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self._connection.write(b"".join(gathered))

    def close(self) -> None:
        self._flush()
        self._connection.close()

    def abort(self) -> None:
        self._gathered.clear()
        self._connection.abort()

    def is_closing(self) -> bool:
        return self._connection.is_closing()

    def pause_reading(self) -> None:
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        self._connection.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._connection.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._connection.get_protocol()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.get_extra_info(name, default)
