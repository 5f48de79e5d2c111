"""The base of the fake chat services: an HTTP server on a loopback port, with faults on request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import deque
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from enum import StrEnum
from typing import Any, Self
from urllib.parse import parse_qsl

from msgspec import Struct, field

from retinue.testing.modelserver import Received, read_request


class ServiceFault(StrEnum):
    """How a request can fail."""

    CUT_BEFORE = "cut-before"
    """The connection ends, and nothing happened."""
    CUT_AFTER = "cut-after"
    """The connection ends after the service did what it was asked for."""
    RATE_LIMIT = "rate-limit"
    ERROR = "error"
    """The service answers 502, and nothing happened."""
    DELAY = "delay"
    CONFLICT = "conflict"
    """Another program does the same at the same time. Noise does not contain it."""


class FormFile(Struct, frozen=True):
    """A file of a form."""

    name: str
    data: bytes
    media_type: str


class ServiceCall(Struct, frozen=True):
    """A request: the method of the service, its arguments and files."""

    name: str
    arguments: dict[str, Any]
    files: dict[str, FormFile] = field(default_factory=dict)
    received: Received | None = None


class Response(Struct, frozen=True):
    """The answer to a request."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class FakeService:
    """Answers requests. `fail` and `be_noisy` make some of them fail."""

    retry_after = 0.2
    """How many seconds a rate limit lasts."""

    def __init__(self) -> None:
        self.calls: list[ServiceCall] = []
        """Every request that had an effect or was refused by the rules of the service."""
        self.failed = 0
        self._planned: deque[tuple[str, ServiceFault]] = deque()
        self._noise: tuple[random.Random, float] | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Condition()

    def fail(self, name: str, *faults: ServiceFault) -> None:
        """Let the next requests whose name contains `name` fail, one after the other."""
        self._planned.extend((name, fault) for fault in faults)

    def be_noisy(self, chance: random.Random, share: float) -> None:
        """Let a share of all requests fail, in ways that `chance` chooses."""
        self._noise = (chance, share)

    def be_quiet(self) -> None:
        self._noise = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        assert self._server is not None, "the server has not been started"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def notify(self) -> None:
        """Wake all that wait for a change."""
        async with self.changed:
            self.changed.notify_all()

    def spawn(self, work: Any) -> None:
        """Run something until the service stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_of(self, request: Received) -> ServiceCall:
        """Return the call that a request makes."""
        raise NotImplementedError

    async def answer(self, call: ServiceCall) -> Response:
        """Do what a call asks for."""
        raise NotImplementedError

    def rate_limited(self, call: ServiceCall) -> Response:
        """Return the answer to a call that came too early."""
        return Response(429, {"retry_after": self.retry_after}, {"retry-after": str(self.retry_after)})

    def conflicting(self, call: ServiceCall) -> Response:
        """Return the answer to a call that another program makes too."""
        description = "Conflict: terminated by other request"
        return Response(409, {"ok": False, "error_code": 409, "description": description})

    def may_fail(self, call: ServiceCall) -> bool:
        """Return whether noise may hit a call."""
        return True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await read_request(reader)) is not None:
                if not await self._serve(self.call_of(request), writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, call: ServiceCall, writer: asyncio.StreamWriter) -> bool:
        fault = self._choose_fault(call)
        match fault:
            case ServiceFault.CUT_BEFORE:
                writer.transport.abort()
                return False
            case ServiceFault.RATE_LIMIT:
                return await _send(writer, self.rate_limited(call))
            case ServiceFault.CONFLICT:
                return await _send(writer, self.conflicting(call))
            case ServiceFault.ERROR:
                return await _send(writer, Response(502, "Bad Gateway"))
            case ServiceFault.DELAY:
                await asyncio.sleep(0.05)
        response = await self.answer(call)
        self.calls.append(call)
        await self.notify()
        if fault is ServiceFault.CUT_AFTER:
            writer.transport.abort()
            return False
        return await _send(writer, response)

    def _choose_fault(self, call: ServiceCall) -> ServiceFault | None:
        if self._planned and self._planned[0][0] in call.name:
            self.failed += 1
            return self._planned.popleft()[1]
        if self._noise is not None and self.may_fail(call) and self._noise[0].random() < self._noise[1]:
            self.failed += 1
            return self._noise[0].choice([each for each in ServiceFault if each is not ServiceFault.CONFLICT])
        return None


def read_arguments(request: Received) -> tuple[dict[str, Any], dict[str, FormFile]]:
    """Return the arguments of a request, sent as JSON, as a form, with files, or in the address."""
    query = dict(parse_qsl(request.path.partition("?")[2], keep_blank_values=True))
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        decoded = json.loads(request.body or b"{}")
        return {**query, **(decoded if isinstance(decoded, dict) else {"list": decoded})}, {}
    if kind.startswith("application/x-www-form-urlencoded"):
        return {**query, **_plain(dict(parse_qsl(request.body.decode(), keep_blank_values=True)))}, {}
    if not kind.startswith("multipart/form-data"):
        return dict(query), {}
    parsed = BytesParser(policy=HTTP).parsebytes(f"content-type: {kind}\r\n\r\n".encode() + request.body)
    fields: dict[str, str] = {}
    files: dict[str, FormFile] = {}
    for part in parsed.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        data = content if isinstance(content, bytes) else b""
        if part.get_filename():
            files[name] = FormFile(str(part.get_filename()), data, part.get_content_type())
        else:
            fields[name] = data.decode()
    return {**query, **_plain(fields)}, files


def _plain(fields: dict[str, str]) -> dict[str, Any]:
    """Return the fields of a form, those with JSON decoded."""
    decoded: dict[str, Any] = {}
    for name, text in fields.items():
        try:
            decoded[name] = json.loads(text) if text[:1] in ("{", "[") or text in ("true", "false") else text
        except ValueError:
            decoded[name] = text
    return decoded


async def _send(writer: asyncio.StreamWriter, response: Response) -> bool:
    raw = isinstance(response.body, bytes)
    data: bytes = response.body if raw else b"" if response.body is None else json.dumps(response.body).encode()
    kind = {"content-type": "application/octet-stream" if raw else "application/json"} if data else {}
    headers = {**kind, **response.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {response.status} Fake\r\ncontent-length: {len(data)}\r\n{head}\r\n".encode() + data)
    await writer.drain()
    return True
