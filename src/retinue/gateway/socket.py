"""The WebSocket: `connect` first, then requests, responses and events until one side ends it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from json import dumps
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from retinue import __version__
from retinue.core.clock import random_id
from retinue.gateway.connection import Connection
from retinue.gateway.gate import Admission, Refused, bearer_token
from retinue.gateway.gateway import Call, Gateway, explain_failure
from retinue.gateway.pairing import spell_code
from retinue.gateway.registry import Entry, call_method
from retinue.gateway.visitors import identify
from retinue.wire.events import PairingRequested
from retinue.wire.frames import ClientFacts, Connect, Event, Failure, Hello, Policy, Request, Wire
from retinue.wire.protocol import (
    CONNECT_SECONDS,
    GATEWAY_STREAM,
    MOST_FIRST_FRAME_BYTES,
    MOST_FRAME_BYTES,
    MOST_IN_FLIGHT,
    PROTOCOL,
    TICK_SECONDS,
    CloseCode,
    ErrorCode,
)

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 1_000
MOST_STRANGERS = 64
"""Connections that have not proven themselves yet."""
WATCH_OWNER_SECONDS = 0.3
"""How often a waiting device's request is looked at; another process may have decided on it."""
SEND_SECONDS = 30.0
"""How long what is queued may wait for a client to read it."""
ABORT = "retinue.abort"
"""Under this name the server puts what cuts a connection off into its scope."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The client went away."""


@dataclass(slots=True)
class Sockets:
    """Serves WebSockets; an ASGI application."""

    gateway: Gateway
    entries: Mapping[str, Entry]
    strangers: int = 0

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        crowded = self.strangers >= MOST_STRANGERS or len(self.gateway.connections) >= MOST_CONNECTIONS
        if crowded or self.gateway.draining:
            await send({"type": "websocket.close", "code": CloseCode.GOING_AWAY, "reason": "try again later"})
            return
        self.strangers += 1
        try:
            await send({"type": "websocket.accept"})
            connection = await self._introduce(scope, receive, send)
        except Gone:
            return
        finally:
            self.strangers -= 1
        if connection is not None:
            await self._serve(connection, receive, send)

    async def _introduce(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> Connection | None:
        """Wait for `connect` and answer it; None where the client was not let in, and was told why."""
        request: Request | None = None
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                text = await _receive_text(receive)
            if len(text) > MOST_FIRST_FRAME_BYTES:
                raise Refused(ErrorCode.TOO_LARGE, "The first frame is too large.")
            request = Request.model_validate_json(text)
            if request.method != "connect":
                raise Refused(ErrorCode.UNAUTHENTICATED, "The first request must be `connect`.")
            return await self._let_in(scope, request, receive, send)
        except (Refused, ValidationError, TimeoutError) as error:
            failure = (
                Failure.of(ErrorCode.BAD_REQUEST, "`connect` did not come in time.")
                if isinstance(error, TimeoutError)
                else explain_failure(error, "connect")
            )
            self.gateway.meters.refusals[failure.code] += 1
            await send({"type": "websocket.send", "text": _failure(request.id if request else "", failure)})
            await send({"type": "websocket.close", "code": CloseCode.POLICY, "reason": failure.code.value})
            return None

    async def _let_in(self, scope: Mapping[str, Any], request: Request, receive: Receive, send: Send) -> Connection:
        connect = Connect.model_validate(request.params)
        if not connect.min_protocol <= PROTOCOL <= connect.max_protocol:
            raise Refused(ErrorCode.BAD_REQUEST, f"This gateway speaks protocol {PROTOCOL}.")
        credentials = connect.auth
        if credentials.token is None:
            token = bearer_token([v.decode("latin-1") for n, v in scope["headers"] if n == b"authorization"])
            credentials = credentials.model_copy(update={"token": token})
        gate = self.gateway.gate
        visitor = identify(scope, gate.settings)
        if credentials.request_pairing and gate.knows_nobody(credentials, visitor):
            admission = await self._await_owner(connect.client, visitor.address, receive, send)
        else:
            admission = gate.admit(credentials, visitor, connect.client.name)
        self.gateway.refuse_commands(admission.principal, scope)
        abort: Callable[[], None] = scope["extensions"].get(ABORT, lambda: None)
        connection = Connection(random_id(), admission.principal, connect.client, self.gateway.hub, abort)
        self.gateway.connections[connection.id] = connection
        connection.push(_success(request.id, self._hello(connection, admission)), urgent=True)
        return connection

    async def _await_owner(self, client: ClientFacts, address: str, receive: Receive, send: Send) -> Admission:
        """Keep a device waiting until the owner has decided on it; the token leaves on this connection alone."""
        gateway = self.gateway
        asked = gateway.gate.ask_to_pair(client, address)
        try:
            told = PairingRequested(id=asked.id, code=spell_code(asked.code), expires_at=asked.expires_at)
            await send({"type": "websocket.send", "text": _event("pairing.requested", told)})
            gateway.tell_of_devices()
            while True:
                with anyio.move_on_after(WATCH_OWNER_SECONDS):
                    await _receive_text(receive)
                    raise Refused(ErrorCode.BAD_REQUEST, "This connection waits for the owner; send nothing before.")
                if gateway.draining:
                    raise Refused(ErrorCode.SHUTTING_DOWN, "The gateway ends. Ask again when it is back.")
                admission = gateway.gate.admit_paired(asked)
                if admission is not None:
                    return admission
        finally:
            gateway.gate.requests.withdraw(asked.id)
            gateway.tell_of_devices()

    def _hello(self, connection: Connection, admission: Admission) -> Hello:
        scopes = admission.principal.scopes
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            epoch=self.gateway.hub.epoch,
            connection=connection.id,
            scopes=sorted(scopes),
            token_id=admission.principal.token_id,
            methods=sorted(name for name, entry in self.entries.items() if entry.method.scope in scopes),
            policy=Policy(max_frame_bytes=MOST_FRAME_BYTES, max_in_flight=MOST_IN_FLIGHT, tick_seconds=TICK_SECONDS),
            token=admission.token,
        )

    async def _serve(self, connection: Connection, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_write, connection, send, tasks.cancel_scope)
                try:
                    await self._read(connection, receive, tasks)
                except Gone:
                    tasks.cancel_scope.cancel()
        finally:
            connection.leave()
            self.gateway.connections.pop(connection.id, None)

    async def _read(self, connection: Connection, receive: Receive, tasks: TaskGroup) -> None:
        in_flight = [0]
        while True:
            text = await _receive_text(receive)
            try:
                request = Request.model_validate_json(text)
            except ValidationError as error:
                connection.push(_failure(_id_in(text), explain_failure(error, "request")), urgent=True)
                continue
            if in_flight[0] >= MOST_IN_FLIGHT:
                busy = f"{MOST_IN_FLIGHT} requests of this connection are open already. Wait for an answer."
                connection.push(_failure(request.id, Failure.of(ErrorCode.BUSY, busy)), urgent=True)
                continue
            in_flight[0] += 1
            tasks.start_soon(self._answer, connection, request, in_flight)

    async def _answer(self, connection: Connection, request: Request, in_flight: list[int]) -> None:
        outcome = "ok"
        try:
            call = Call(self.gateway, connection.principal, connection)
            connection.push(
                _success(request.id, await call_method(self.entries, call, request.method, request.params)), urgent=True
            )
        except Exception as error:  # noqa: BLE001 - border: one request must not end the connection; it is logged there
            failure = explain_failure(error, request.method)
            outcome = failure.code.value
            connection.push(_failure(request.id, failure), urgent=True)
        finally:
            in_flight[0] -= 1
        known = request.method if request.method in self.entries else "unknown"
        self.gateway.meters.calls[known, outcome] += 1


async def _write(connection: Connection, send: Send, scope: anyio.CancelScope) -> None:
    """Send what is queued. A client that does not take it in time is cut off."""
    try:
        while await connection.has_news():
            with anyio.fail_after(SEND_SECONDS):
                while (frame := connection.take()) is not None:
                    await send({"type": "websocket.send", "text": frame})
        assert connection.closing is not None
        code, reason = connection.closing
        with anyio.fail_after(1):
            await send({"type": "websocket.close", "code": code, "reason": reason})
    except TimeoutError:
        connection.cut()
    except OSError:
        pass  # the client went away, which the reader sees too
    scope.cancel()


async def _receive_text(receive: Receive) -> str:
    message = await receive()
    if message["type"] != "websocket.receive":
        raise Gone
    text = message.get("text")
    return text if isinstance(text, str) else (message.get("bytes") or b"").decode("utf-8", "replace")


def _success(identity: str, payload: Wire) -> str:
    return f'{{"type":"res","id":{dumps(identity)},"ok":true,"payload":{payload.model_dump_json(by_alias=True)}}}'


def _event(name: str, payload: Wire) -> str:
    """An event of no stream that is followed, such as one before the hello."""
    event = Event(event=name, stream=GATEWAY_STREAM, seq=0, payload=payload.model_dump(mode="json", by_alias=True))
    return event.model_dump_json(by_alias=True)


def _failure(identity: str, failure: Failure) -> str:
    error = failure.model_dump_json(by_alias=True, exclude_none=True)
    return f'{{"type":"res","id":{dumps(identity)},"ok":false,"error":{error}}}'


def _id_in(text: str) -> str:
    """The id of a frame that is no request, as far as it has one, so that whoever sent it knows what failed."""
    from json import loads

    try:
        found = loads(text)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) and len(found) <= 128 else ""
