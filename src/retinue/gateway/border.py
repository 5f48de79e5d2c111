"""The outermost layer: what does not come from where it may, or is too large, reaches nothing behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected

from retinue.gateway.gate import Refused, may_be_host, may_be_origin
from retinue.gateway.gateway import Gateway
from retinue.wire.frames import Failure
from retinue.wire.protocol import HTTP_STATUS, MOST_FRAME_BYTES, SOCKET_PATH, ErrorCode

MOST_BODY_BYTES = MOST_FRAME_BYTES
TOO_LARGE = f"A body has at most {MOST_BODY_BYTES} bytes."
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Border:
    """An ASGI application around the others."""

    gateway: Gateway
    http: App
    sockets: App

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.http(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        refusal = self._refusal(scope)
        if refusal is not None:
            self.gateway.meters.refusals[refusal.code] += 1
            if is_socket:
                await receive()
            await (_deny_socket if is_socket else send_failure)(send, refusal)
        elif is_socket:
            await self.sockets(scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    def _refusal(self, scope: Mapping[str, Any]) -> Failure | None:
        hosts, origins = header(scope, b"host"), header(scope, b"origin")
        allowed = self.gateway.gate.settings.control_ui.allowed_origins
        if not may_be_host(hosts, allowed):
            return Failure.of(
                ErrorCode.FORBIDDEN,
                "The Host header does not name this gateway. Add its address to gateway.controlUi.allowedOrigins, such "
                "as https://assistant.example.org.",
            )
        if not may_be_origin(origins, hosts, allowed):
            return Failure.of(
                ErrorCode.FORBIDDEN,
                "Pages of this origin may not use the gateway. gateway.controlUi.allowedOrigins lists those that may.",
            )
        if scope["type"] == "websocket" and scope["path"] not in self._socket_paths():
            return Failure.of(ErrorCode.NOT_FOUND, f"The socket is {SOCKET_PATH}.")
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            kinds = [kind.partition(";")[0].strip().lower() for kind in header(scope, b"content-type")]
            if kinds != ["application/json"]:
                return Failure.of(ErrorCode.BAD_REQUEST, "Requests that change something need a JSON content type.")
        length = header(scope, b"content-length")
        if length and (not length[0].isdecimal() or int(length[0]) > MOST_BODY_BYTES):
            return Failure.of(ErrorCode.TOO_LARGE, TOO_LARGE)
        return None

    def _socket_paths(self) -> tuple[str, str]:
        prefix = self.gateway.gate.settings.control_ui.base_path.rstrip("/")
        return SOCKET_PATH, prefix + SOCKET_PATH

    async def _pass(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BODY_BYTES:
                raise Refused(ErrorCode.TOO_LARGE, TOO_LARGE)
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message.get("headers", ())}
                extra = [pair for pair in SECURITY_HEADERS if pair[0] not in given]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        await self.http(scope, bounded, guarded)


def header(scope: Mapping[str, Any], name: bytes) -> Sequence[str]:
    """The values of a header, in order."""
    return [value.decode("latin-1") for found, value in scope["headers"] if found == name]


async def send_failure(send: Send, failure: Failure) -> None:
    """Answer a request with an error."""
    body = _body(failure)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *SECURITY_HEADERS]
    if failure.code is ErrorCode.TOO_LARGE:
        headers.append((b"connection", b"close"))  # or the rest of the body would still be read
    await send({"type": "http.response.start", "status": HTTP_STATUS[failure.code], "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _deny_socket(send: Send, failure: Failure) -> None:
    headers = [(b"content-type", b"application/json"), *SECURITY_HEADERS]
    await send({"type": "websocket.http.response.start", "status": HTTP_STATUS[failure.code], "headers": headers})
    await send({"type": "websocket.http.response.body", "body": _body(failure)})
    # The server takes a socket that was answered and not accepted for a mistake of ours, and logs it, unless it is told
    # that nobody is there any more.
    raise ClientDisconnected


def _body(failure: Failure) -> bytes:
    return f'{{"error":{failure.model_dump_json(by_alias=True, exclude_none=True)}}}'.encode()
