"""A model server for tests: real protocols on a loopback port, answers from a script.

In a test it is an async context manager. On its own it is a program that prints its port and serves until it is
ended: `python -m retinue.testing.modelserver --script FILE`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self, assert_never

from msgspec import Struct

from retinue.providers.stream import to_json
from retinue.testing.dialects import ChatDialect, Dialect, GeminiDialect, MessagesDialect, ResponsesDialect
from retinue.testing.replies import SCRIPT_IS_OVER, Fault, Reply, parse_reply, refuses

DRIP_SECONDS = 0.02

_DIALECTS: tuple[tuple[re.Pattern[str], Dialect], ...] = (
    (re.compile(r"/chat/completions$"), ChatDialect()),
    (re.compile(r"/responses$"), ResponsesDialect()),
    (re.compile(r"/messages$"), MessagesDialect()),
    (re.compile(r":streamGenerateContent$"), GeminiDialect()),
)


class Received(Struct, frozen=True):
    """A request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextlib.contextmanager
def running_server(folder: Path, replies: Iterable[object]) -> Iterator[int]:
    """Run a model server in a separate process, with its script in `folder`; yield the port."""
    script = folder / "script.json"
    script.write_text(json.dumps(list(replies)))
    argv = [sys.executable, "-m", "retinue.testing.modelserver", "--port", "0", "--script", str(script)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline().strip().rsplit(" ", 1)[-1])
        finally:
            server.kill()


class Hold(Struct, frozen=True):
    """Where an answer stops: before a chunk, until `over`."""

    piece: int
    over: asyncio.Event


class ModelServer:
    """Answers model requests with the replies of its script, in order; after the last one with `then`."""

    def __init__(
        self,
        *replies: Reply,
        then: Reply | None = None,
        models: Sequence[str] = ("test-model",),
        record: Path | None = None,
    ) -> None:
        self._replies = deque(replies)
        self._then = then or refuses(400, SCRIPT_IS_OVER)
        self._models = tuple(models)
        self._record = record
        self._server: asyncio.Server | None = None
        self.accepted = 0
        """The number of connections so far."""
        self._connections: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        self.requests: list[Received] = []
        self.stops_at: Hold | None = None
        """If set, each answer stops in its middle."""

    def push(self, *replies: Reply) -> None:
        """Add replies to the end of the script."""
        self._replies.extend(replies)

    async def reply_to(self, request: Received) -> Reply:
        """Return the answer to a model request; a server with rules instead of a script overrides it."""
        return self._replies.popleft() if self._replies else self._then

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def wait_until_disconnected(self) -> None:
        """Wait until all clients have disconnected."""
        while self._connections:
            self._quiet.clear()
            await self._quiet.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        assert self._server is not None, "the server has not been started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model_requests(self) -> list[Received]:
        """The model requests so far."""
        return [request for request in self.requests if request.method == "POST"]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        try:
            while (request := await read_request(reader)) is not None:
                self.requests.append(request)
                if self._record is not None:
                    line = {"method": request.method, "path": request.path}
                    with self._record.open("a", encoding="utf-8") as file:
                        file.write(to_json(line | {"body": request.body.decode(errors="replace")}) + "\n")
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            self._quiet.set()
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return False if the connection must not be used again."""
        dialect = next((found for shape, found in _DIALECTS if shape.search(request.path.partition("?")[0])), None)
        if request.method == "GET" and request.path == "/api/tags":
            return await _send_json(writer, 200, {"models": [{"name": name, "model": name} for name in self._models]})
        if request.method == "GET" and request.path.endswith("/v1/models"):
            return await _send_json(writer, 200, {"object": "list", "data": [{"id": name} for name in self._models]})
        if request.method != "POST" or dialect is None:
            return await _send_json(writer, 404, {"error": {"message": f"there is nothing at {request.path}"}})
        reply = await self.reply_to(request)
        if reply.body is not None:
            return await _send(writer, reply.status, reply.body, reply.headers)
        if reply.status != 200:
            return await _send_json(writer, reply.status, dialect.error(reply), reply.headers)
        return await _send_stream(dialect, reply, reader, writer, self.stops_at)


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """Read the next request; return None if the client disconnected before or during it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    return Received(method, path, headers, body)


async def _send_json(
    writer: asyncio.StreamWriter, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> bool:
    return await _send(writer, status, to_json(body).encode(), headers)


async def _send(
    writer: asyncio.StreamWriter, status: int, data: bytes, headers: Mapping[str, str] | None = None
) -> bool:
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{extra}\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return True


async def _send_stream(
    dialect: Dialect,
    reply: Reply,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    hold: Hold | None = None,
) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number, piece in enumerate(islice(dialect.content(reply), reply.pieces)):
        if hold is not None and number == hold.piece:
            await hold.over.wait()
        await _send_chunk(writer, piece)
    match reply.fault:
        case None:
            for piece in dialect.ending(reply):
                await _send_chunk(writer, piece)
        case Fault.UNFINISHED:
            pass
        case Fault.CUT:
            writer.transport.abort()
            return False
        case Fault.BAD_UTF8:
            await _send_chunk(writer, b'data: {"broken": "\xff\xfe"}\n\n')
        case Fault.BAD_JSON:
            await _send_chunk(writer, b"data: {broken\n\n")
        case Fault.HANG:
            await reader.read(1)
            return False
        case Fault.DRIP | Fault.FLOOD:
            await _send_for_ever(writer, dialect.keepalive if reply.fault is Fault.DRIP else b"x" * 1_000_000)
        case _:
            assert_never(reply.fault)
    await _send_chunk(writer, b"")
    return True


async def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _send_for_ever(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send until the client disconnects, which raises a `ConnectionError`."""
    while True:
        await _send_chunk(writer, data)
        await asyncio.sleep(DRIP_SECONDS if len(data) < 1000 else 0)


def read_script(path: Path) -> tuple[list[Reply], Reply | None]:
    """Read the replies of a script file: a JSON list, or an object with `replies` and `then`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    listed: Iterable[Any] = content["replies"] if isinstance(content, dict) else content
    then = content.get("then") if isinstance(content, dict) else None
    return [parse_reply(entry) for entry in listed], parse_reply(then) if then is not None else None


async def _serve(port: int, script: Path, record: Path | None, models: Sequence[str]) -> None:
    replies, then = read_script(script)
    server = ModelServer(*replies, then=then, models=models, record=record)
    await server.start(port)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script until interrupted."""
    parser = argparse.ArgumentParser(description="Serve scripted model answers on a loopback port.")
    parser.add_argument("--port", type=int, default=0, help="the port; 0 takes a free one")
    parser.add_argument("--script", type=Path, required=True, help="a JSON file of replies")
    parser.add_argument("--record", type=Path, help="append each request to this file, one JSON object per line")
    parser.add_argument("--model", action="append", default=[], help="a model name to list; may be repeated")
    chosen = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(chosen.port, chosen.script, chosen.record, chosen.model or ("test-model",)))


if __name__ == "__main__":
    main()
