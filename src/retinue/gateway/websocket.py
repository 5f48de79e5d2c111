"""The WebSocket endpoint: `connect` first, then requests, responses and events until one side closes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from json import dumps

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec import UNSET
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from retinue import __version__
from retinue.core.clock import random_id
from retinue.gateway.auth.authenticator import Admission
from retinue.gateway.auth.pairing import format_code
from retinue.gateway.auth.request_source import find_source
from retinue.gateway.connection import Connection, MemberConnection, SendQueue
from retinue.gateway.errors import RequestRefused, explain_failure, read_json
from retinue.gateway.event_hub import encode_event
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.registry import MethodBinding, call_method, may_call
from retinue.gateway.transport import ABORT, ADMIT
from retinue.runtime.dispatcher.dispatcher import run_in_steps
from retinue.wire import codec
from retinue.wire.frames import (
    ClientFacts,
    Connect,
    Credentials,
    Failure,
    Hello,
    PairingRequested,
    Policy,
    RequestFrame,
    Wire,
)
from retinue.wire.protocol import (
    CONNECT_SECONDS,
    GATEWAY_STREAM,
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_IN_FLIGHT,
    PROTOCOL,
    TICK_SECONDS,
    CloseCode,
    ErrorCode,
)

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1_000
MAX_UNAUTHENTICATED = 64
"""How many connections may wait for their authentication at the same time."""
PAIRING_POLL_SECONDS = 0.3
"""How often a pairing request is read; another process may have decided on it."""
SIGN_IN_OF_TEAM = {"signIn": "team"}
"""Tells the page that members of a team sign in here."""
SEND_SECONDS = 30.0
"""How long queued frames may wait for a client to read them."""


class SocketEndpoint:
    """Serves WebSockets; an ASGI application."""

    def __init__(self, gateway: Gateway, methods: Mapping[str, MethodBinding]) -> None:
        self._gateway = gateway
        self._methods = methods
        self._steps = gateway.runtime.dispatcher.steps
        self._unauthenticated = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        crowded = self._unauthenticated >= MAX_UNAUTHENTICATED or len(self._gateway.connections) >= MAX_CONNECTIONS
        if crowded or self._gateway.state.draining:
            await socket.receive()
            await socket.close(CloseCode.GOING_AWAY, "try again later")
            return
        self._unauthenticated += 1
        try:
            await socket.accept()
            connection = await self._open_connection(socket)
        except WebSocketDisconnect:
            return
        finally:
            self._unauthenticated -= 1
        if connection is not None:
            await self._serve(connection, socket)

    async def _open_connection(self, socket: WebSocket) -> Connection | None:
        """Wait for `connect` and answer it; None if the client was refused and the socket is closed."""
        identity = ""
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                text = await _receive_text(socket)
            if len(text) > MAX_FIRST_FRAME_BYTES:
                raise RequestRefused(ErrorCode.TOO_LARGE, "The first frame is too large.")
            request = read_json(text, RequestFrame)
            identity = request.id
            if request.method != "connect":
                raise RequestRefused(ErrorCode.UNAUTHENTICATED, "The first request must be `connect`.")
            return await self._authenticate(socket, request)
        except (RequestRefused, TimeoutError) as error:
            failure = (
                Failure.of(ErrorCode.BAD_REQUEST, f"`connect` was not received within {CONNECT_SECONDS:g} seconds.")
                if isinstance(error, TimeoutError)
                else explain_failure(error, "connect")
            )
            if failure.code is ErrorCode.UNAUTHENTICATED and self._gateway.members is not None:
                failure = replace(failure, details=SIGN_IN_OF_TEAM)
            self._gateway.state.metrics.refusals[failure.code] += 1
            await socket.send_text(_failure(identity, failure))
            await socket.close(CloseCode.POLICY, failure.code.value)
            return None

    async def _authenticate(self, socket: WebSocket, request: RequestFrame) -> Connection:
        connect = read_json(bytes(request.params), Connect)
        if not connect.min_protocol <= PROTOCOL <= connect.max_protocol:
            raise RequestRefused(ErrorCode.BAD_REQUEST, f"This gateway supports only protocol version {PROTOCOL}.")
        credentials = connect.auth
        token = await self._gateway.find_token(socket.scope, credentials.token)
        if credentials.token is None:
            credentials = Credentials(
                token,
                credentials.password,
                credentials.pairing_code,
                credentials.request_pairing,
            )
        auth = self._gateway.auth
        source = find_source(socket.scope, auth.settings)
        if credentials.request_pairing and auth.lacks_credentials(credentials, source):
            admission = await self._wait_for_approval(connect.client, source.address, socket)
        else:
            admission = auth.admit(credentials, source, connect.client.name)
            if credentials.pairing_code is not None:
                self._gateway.publish_devices()
        self._gateway.refuse_agent_command(admission.principal, socket.scope)
        if connect.scopes is not UNSET:
            limited = admission.principal.limited_to(connect.scopes, connect.client.name)
            admission = replace(admission, principal=limited)
        extensions = socket.scope["extensions"]
        abort: Callable[[], None] = extensions.get(ABORT, lambda: None)
        lift_limit: Callable[[], None] = extensions.get(ADMIT, lambda: None)
        lift_limit()
        make = Connection if admission.principal.member is None else MemberConnection
        connection = make(random_id(), admission.principal, connect.client, self._gateway.hub, abort)
        connection.share = (source.address, admission.principal.token_id, connection.id)
        self._gateway.connections.add(connection)
        connection.push(_success(request.id, self._make_hello(connection, admission)), urgent=True)
        return connection

    async def _wait_for_approval(self, client: ClientFacts, address: str, socket: WebSocket) -> Admission:
        """Keep a device waiting until the owner has decided; only this connection receives the token."""
        gateway = self._gateway
        request = gateway.auth.request_pairing(client, address)
        try:
            shown = PairingRequested(request.id, format_code(request.code), request.expires_at)
            await socket.send_text(encode_event(GATEWAY_STREAM, 0, "pairing.requested", shown))
            gateway.publish_devices()
            while True:
                with anyio.move_on_after(PAIRING_POLL_SECONDS):
                    await _receive_text(socket)
                    raise RequestRefused(
                        ErrorCode.BAD_REQUEST, "This connection waits for approval. Send nothing until then."
                    )
                if gateway.state.draining:
                    raise RequestRefused(
                        ErrorCode.SHUTTING_DOWN, "The gateway is shutting down. Request pairing again after its start."
                    )
                admission = gateway.auth.admit_paired(request)
                if admission is not None:
                    return admission
        finally:
            gateway.auth.pairing.withdraw(request.id)
            gateway.publish_devices()

    def _make_hello(self, connection: Connection, admission: Admission) -> Hello:
        scopes = admission.principal.scopes
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            epoch=self._gateway.hub.epoch,
            connection=connection.id,
            scopes=sorted(scopes),
            token_id=admission.principal.token_id,
            methods=sorted(
                name for name, binding in self._methods.items() if may_call(admission.principal, binding.method)
            ),
            policy=Policy(max_frame_bytes=MAX_FRAME_BYTES, max_in_flight=MAX_IN_FLIGHT, tick_seconds=TICK_SECONDS),
            token=admission.token,
        )

    async def _serve(self, connection: Connection, socket: WebSocket) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_send_queued, connection, socket, tasks.cancel_scope)
                try:
                    await self._read_requests(connection, socket, tasks)
                except WebSocketDisconnect:
                    tasks.cancel_scope.cancel()
        finally:
            self._gateway.connections.remove(connection)

    async def _read_requests(self, connection: Connection, socket: WebSocket, tasks: TaskGroup) -> None:
        while True:
            # Frames that have already arrived are returned without waiting. Connections take turns, one request each,
            # so that a client that sends thousands at once does not delay the others.
            await anyio.lowlevel.checkpoint()
            text = await _receive_text(socket)
            try:
                _check_frame_size(text)
                request = read_json(text, RequestFrame)
            except RequestRefused as error:
                connection.push(_failure(_find_id(text), explain_failure(error, "request")), urgent=True)
                continue
            if connection.open_requests >= MAX_IN_FLIGHT:
                busy = f"This connection has {MAX_IN_FLIGHT} open requests already. Wait for a response."
                connection.push(_failure(request.id, Failure.of(ErrorCode.BUSY, busy)), urgent=True)
                continue
            connection.open_requests += 1
            tasks.start_soon(run_in_steps, self._steps, connection.share, partial(self._answer, connection, request))

    async def _answer(self, connection: Connection, request: RequestFrame) -> None:
        outcome = "ok"
        try:
            call = Call(self._gateway, connection.principal, connection)
            result = await call_method(self._methods, call, request.method, bytes(request.params))
            connection.push(_success(request.id, result), urgent=True)
        except Exception as error:  # noqa: BLE001 - border: one request must not end the connection; it is logged there
            failure = explain_failure(error, request.method)
            outcome = failure.code.value
            connection.push(_failure(request.id, failure), urgent=True)
        finally:
            connection.open_requests -= 1
        known = request.method if request.method in self._methods else "unknown"
        self._gateway.state.metrics.calls[known, outcome] += 1


async def _send_queued(queue: SendQueue, socket: WebSocket, scope: anyio.CancelScope) -> None:
    """Send queued frames. A client that does not read them in time is cut off."""
    try:
        while await queue.has_news():
            with anyio.move_on_after(SEND_SECONDS) as sending:
                while (frame := queue.take()) is not None:
                    await socket.send_text(frame)
            if sending.cancelled_caught:
                raise TimeoutError
        assert queue.closing is not None
        code, reason = queue.closing
        with anyio.fail_after(1):
            await socket.close(code, reason)
    except TimeoutError:
        queue.cut()
    except (OSError, WebSocketDisconnect):
        pass  # the client disconnected; the reader notices it, too
    scope.cancel()


async def _receive_text(socket: WebSocket) -> str:
    """The next frame; raises `WebSocketDisconnect` after the last."""
    message = await socket.receive()
    if message["type"] != "websocket.receive":
        raise WebSocketDisconnect(message.get("code", CloseCode.GOING_AWAY))
    text = message.get("text")
    return text if isinstance(text, str) else (message.get("bytes") or b"").decode("utf-8", "replace")


def _check_frame_size(text: str) -> None:
    """Raise `RequestRefused` if a frame is too large; a client may read the limit in the response to `connect`."""
    if len(text) > MAX_FRAME_BYTES // 4 and (size := len(text.encode())) > MAX_FRAME_BYTES:
        problem = f"The request is too large: it has {size:,} bytes, and {MAX_FRAME_BYTES:,} bytes are allowed."
        raise RequestRefused(ErrorCode.TOO_LARGE, problem)


def _success(identity: str, payload: Wire) -> str:
    return f'{{"type":"res","id":{dumps(identity)},"ok":true,"payload":{codec.encode(payload)}}}'


def _failure(identity: str, failure: Failure) -> str:
    return f'{{"type":"res","id":{dumps(identity)},"ok":false,"error":{codec.encode(failure)}}}'


def _find_id(text: str) -> str:
    """The id of a frame that is not a valid request, if it has one, so that the client knows what failed."""
    try:
        found = codec.read_json(text)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) and len(found) <= 128 else ""
