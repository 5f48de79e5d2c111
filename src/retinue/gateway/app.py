"""The HTTP application: all endpoints, responses for errors, and the guard around them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import RetinueError
from retinue.gateway.auth.authenticator import bearer_token
from retinue.gateway.auth.request_source import find_source, header_values, is_allowed_host, is_allowed_origin
from retinue.gateway.endpoint import JSON, RouteEndpoint, failure_response
from retinue.gateway.errors import RequestRefused, explain_failure
from retinue.gateway.gateway import Gateway
from retinue.gateway.openai_api import routes as openai_api
from retinue.gateway.routes import health, incoming, mcp, page, plugins, rpc, tools
from retinue.runtime.dispatcher.dispatcher import run_in_steps
from retinue.wire.frames import Failure
from retinue.wire.protocol import HTTP_STATUS, MAX_FRAME_BYTES, SOCKET_PATH, ErrorCode

MAX_BODY_BYTES = MAX_FRAME_BYTES
TOO_LARGE = f"The request is too large: {MAX_BODY_BYTES:,} bytes are allowed. Send less text or smaller pictures."
MAX_DISCARDED_BYTES = 128 * MAX_BODY_BYTES
DISCARD_SECONDS = 10.0
SLOW_BODY = "The body was not sent in time (gateway.http.bodyTimeoutMs). Send it faster, or send less."
OPENAI_PATHS = ("/v1/", "/tools/")
"""Paths whose errors have OpenAI's format."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_RAW_SECURITY_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


def list_endpoints(
    *, page_path: str = "", hooks_path: str = "/hooks", has_team: bool = False
) -> tuple[RouteEndpoint, ...]:
    """All endpoints; the paths of the chat page and the webhooks are configurable."""
    sign_in: Sequence[RouteEndpoint] = ()
    if has_team:
        from retinue.gateway.routes.sign_in import make_endpoints  # a home without a team does not import it

        sign_in = make_endpoints(page_path)
    return (
        *sign_in,
        *health.ENDPOINTS,
        *rpc.ENDPOINTS,
        *mcp.ENDPOINTS,
        *page.make_endpoints(page_path),
        incoming.CHANNEL_ENDPOINT,
        incoming.SERVICE_ENDPOINT,
        *openai_api.ENDPOINTS,
        *tools.ENDPOINTS,
        *plugins.ENDPOINTS,
        incoming.make_webhook_endpoint(hooks_path),  # last, so that a configured path cannot hide another endpoint
    )


def make_app(gateway: Gateway) -> Starlette:
    """The application with all endpoints."""
    config = gateway.runtime.home.config
    endpoints = list_endpoints(
        page_path=config.gateway.control_ui.base_path.rstrip("/"),
        hooks_path=config.hooks.path,
        has_team=gateway.members is not None,
    )
    app = Starlette(
        routes=[endpoint.make_route() for endpoint in endpoints],
        exception_handlers={
            RetinueError: _respond_to_error,
            HTTPException: _respond_to_http_error,
            Exception: _respond_to_error,
        },
    )
    app.state.gateway = gateway
    return app


async def _respond_to_error(request: Request, error: Exception) -> Response:
    return failure_response(explain_failure(error, request.url.path))


async def _respond_to_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = next((code for code, status in HTTP_STATUS.items() if status == error.status_code), ErrorCode.BAD_REQUEST)
    path, problem = request.url.path[:200], str(error.detail)
    if error.status_code == 404:
        problem = f"There is nothing at {path}. `retinue gateway schema` lists all paths."
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "see the schema")
        problem = f"{path} does not support {request.method}. Use: {allowed}."
    return failure_response(Failure.of(code, problem), error.status_code)


class RequestGuard:
    """An ASGI application around the HTTP application and the WebSocket."""

    def __init__(self, gateway: Gateway, http: ASGIApp, socket: ASGIApp) -> None:
        self._gateway = gateway
        self._http = http
        self._socket = socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._http(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        refusal = _find_refusal(scope, self._gateway.auth.settings)
        if refusal is not None:
            self._gateway.state.metrics.refusals[refusal.code] += 1
            is_openai = scope["path"].startswith(OPENAI_PATHS)
            response = failure_response(refusal, openai=is_openai)
            response.headers.update(SECURITY_HEADERS)
            if not is_socket:
                if refusal.code is ErrorCode.TOO_LARGE:
                    send = _before_end(send, partial(_discard_body, scope, receive))
                await response(scope, receive, send)
                return
            socket = WebSocket(scope, receive, send)
            await socket.receive()
            await socket.send_denial_response(response)
            # The server logs a WebSocket that was answered but not accepted as an error of the application, unless the
            # client counts as disconnected.
            raise ClientDisconnected
        if is_socket:
            await self._socket(scope, receive, send)
        else:
            await self._serve_http(scope, receive, send)

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0
        complete = False
        deadline = anyio.current_time() + self._gateway.auth.settings.http.body_timeout_ms / 1000

        async def receive_within_limit() -> Message:
            nonlocal received, complete
            # After the body, the server waits here for the client to disconnect, which has no limit.
            with anyio.CancelScope(deadline=math.inf if complete else deadline) as limit:
                message = await receive()
            if limit.cancelled_caught:
                raise RequestRefused(ErrorCode.TIMED_OUT, SLOW_BODY)
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                if message.get("more_body", False):
                    await _discard_body(scope, receive)
                raise RequestRefused(ErrorCode.TOO_LARGE, TOO_LARGE)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message.get("headers", ())}
                extra = [pair for pair in _RAW_SECURITY_HEADERS if pair[0] not in given]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        auth = self._gateway.auth
        token = bearer_token(header_values(scope, "authorization"))
        share = (find_source(scope, auth.settings).address, auth.client_name(token))

        async def serve() -> None:
            await self._http(scope, receive_within_limit, send_with_headers)

        await run_in_steps(self._gateway.runtime.dispatcher.steps, share, serve)


def _before_end(send: Send, act: Callable[[], Awaitable[None]]) -> Send:
    """A `send` that calls `act` when the whole response was sent, and before the connection is closed."""

    async def send_and_act(message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})
        await act()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_and_act


async def _discard_body(scope: Scope, receive: Receive) -> None:
    """Read the rest of a body that is too large, within limits.

    A client that is still sending when the connection is closed gets a reset instead of the response. A client that
    waits for `100 Continue` has not sent the body.
    """
    if header_values(scope, "expect"):
        return
    discarded = 0
    with anyio.move_on_after(DISCARD_SECONDS):
        while discarded <= MAX_DISCARDED_BYTES:
            message = await receive()
            discarded += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


def _find_refusal(scope: Scope, settings: GatewaySettings) -> Failure | None:
    hosts, origins = header_values(scope, "host"), header_values(scope, "origin")
    allowed = settings.control_ui.allowed_origins
    if not is_allowed_host(hosts, allowed):
        return Failure.of(
            ErrorCode.FORBIDDEN,
            "The Host header does not name this gateway. Add its address to gateway.controlUi.allowedOrigins, such "
            "as https://assistant.example.org.",
        )
    if not is_allowed_origin(origins, hosts, allowed):
        return Failure.of(
            ErrorCode.FORBIDDEN,
            "Pages of this origin may not use the gateway. Add the origin to gateway.controlUi.allowedOrigins.",
        )
    if scope["type"] == "websocket":
        prefix = settings.control_ui.base_path.rstrip("/")
        if scope["path"] not in (SOCKET_PATH, prefix + SOCKET_PATH):
            return Failure.of(ErrorCode.NOT_FOUND, f"The WebSocket is at {SOCKET_PATH}.")
    elif scope["method"] not in SAFE_METHODS:
        kinds = [kind.partition(";")[0].strip().lower() for kind in header_values(scope, "content-type")]
        if kinds != [JSON]:
            return Failure.of(ErrorCode.BAD_REQUEST, f"The request needs the content type `{JSON}`.")
    length = header_values(scope, "content-length")
    if length and (not length[0].isdecimal() or int(length[0]) > MAX_BODY_BYTES):
        return Failure.of(ErrorCode.TOO_LARGE, TOO_LARGE)
    return None
