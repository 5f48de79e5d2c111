"""The outermost layer: what does not come from where it may, or is too large, reaches nothing behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        refusal = self._refusal(scope)
        if scope["type"] == "websocket":
            prefix = self.gateway.gate.settings.control_ui.base_path.rstrip("/")
            if refusal is not None or scope["path"] not in (SOCKET_PATH, prefix + SOCKET_PATH):
                await receive()
                await _deny_socket(send, refusal or Failure.of(ErrorCode.NOT_FOUND, f"The socket is {SOCKET_PATH}."))
                return
            await self.sockets(scope, receive, send)
            return
        if refusal is not None:
            self.gateway.meters.refusals[refusal.code] += 1
            await send_failure(send, refusal)
            return
        await self._pass(scope, receive, send)

    def _refusal(self, scope: Mapping[str, Any]) -> Failure | None:
        hosts, origins = header(scope, b"host"), header(scope, b"origin")
        allowed = self.gateway.gate.settings.control_ui.allowed_origins
        if not may_be_host(hosts, allowed):
            return Failure.of(ErrorCode.FORBIDDEN, "The Host header does not name this gateway.")
        if not may_be_origin(origins, hosts, allowed):
            return Failure.of(
                ErrorCode.FORBIDDEN, "Pages of this origin may not use the gateway: gateway.controlUi.allowedOrigins."
            )
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            kinds = [kind.partition(";")[0].strip().lower() for kind in header(scope, b"content-type")]
            if kinds != ["application/json"]:
                return Failure.of(ErrorCode.BAD_REQUEST, "Requests that change something need a JSON content type.")
        length = header(scope, b"content-length")
        if length and (not length[0].isdigit() or int(length[0]) > MOST_BODY_BYTES):
            return Failure.of(ErrorCode.TOO_LARGE, TOO_LARGE)
        return None

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
    body = f'{{"error":{failure.model_dump_json(by_alias=True, exclude_none=True)}}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *SECURITY_HEADERS]
    if failure.code is ErrorCode.TOO_LARGE:
        headers.append((b"connection", b"close"))  # or the rest of the body would still be read
    await send({"type": "http.response.start", "status": HTTP_STATUS[failure.code], "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _deny_socket(send: Send, failure: Failure) -> None:
    body = f'{{"error":{failure.model_dump_json(by_alias=True, exclude_none=True)}}}'.encode()
    headers = [(b"content-type", b"application/json"), *SECURITY_HEADERS]
    await send({"type": "websocket.http.response.start", "status": HTTP_STATUS[failure.code], "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
