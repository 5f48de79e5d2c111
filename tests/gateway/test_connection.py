"""Frames are sent in few packets, in order and without long delays."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import anyio
import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from retinue.dispatch.shares import StepQueue
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.connection import Connection
from retinue.gateway.event_hub import EventHub
from retinue.gateway.transport import MAX_GATHERED_BYTES, GatheredWrites
from retinue.gateway.websocket import SocketEndpoint
from retinue.wire.frames import ClientFacts, RequestFrame
from retinue.wire.protocol import Scope

pytestmark = pytest.mark.anyio

A_LONG_TIME = 3_600.0


class Line(asyncio.Transport):
    """A connection that keeps what it is told to do."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 4)})
        self.done: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.done.append("closed")

    def abort(self) -> None:
        self.done.append("aborted")


def gather(line: Line) -> GatheredWrites:
    return GatheredWrites(line, asyncio.get_running_loop())


async def test_what_is_written_in_one_round_leaves_as_one_piece() -> None:
    line = Line()
    writer = gather(line)
    for part in (b"HTTP/1.1 200 OK\r\n", b"", b"\r\n", b"hello"):
        writer.write(part)
    assert line.done == []
    await anyio.lowlevel.checkpoint()
    writer.write(b"more")
    await anyio.lowlevel.checkpoint()
    assert line.done == [b"HTTP/1.1 200 OK\r\n\r\nhello", b"more"]


async def test_much_is_not_gathered_so_that_a_slow_reader_is_noticed() -> None:
    line = Line()
    writer = gather(line)
    writer.write(b"a" * (MAX_GATHERED_BYTES - 1))
    assert line.done == []
    writer.write(b"bc")
    assert b"".join(part for part in line.done if isinstance(part, bytes)).endswith(b"abc")


async def test_closing_sends_what_is_left_and_aborting_does_not() -> None:
    closed, aborted = Line(), Line()
    polite, rude = gather(closed), gather(aborted)
    for writer in (polite, rude):
        writer.write(b"bye")
    polite.close()
    rude.abort()
    await anyio.lowlevel.checkpoint()
    assert closed.done == [b"bye", "closed"]
    assert aborted.done == ["aborted"]
    assert polite.get_extra_info("peername") == ("127.0.0.1", 4)


def connect(gather_seconds: float = A_LONG_TIME) -> Connection:
    principal = Principal("t", "bench", frozenset[Scope]())
    return Connection(
        "c", principal, ClientFacts(name="test"), EventHub("e"), lambda: None, gather_seconds=gather_seconds
    )


def take_all(connection: Connection) -> list[str]:
    return list(iter(connection.take, None))


async def test_a_lonely_event_is_sent_at_once_and_those_close_behind_it_together() -> None:
    connection = connect()
    connection.push("started")
    assert await connection.has_news()
    assert take_all(connection) == ["started"]
    sent: list[str] = []

    async def send() -> None:
        await connection.has_news()
        sent.extend(take_all(connection))

    connection.push("word")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        connection.push("finished")
        await anyio.wait_all_tasks_blocked()
        assert sent == []
        connection.push("response", urgent=True)
    assert sent == ["word", "finished", "response"]


async def test_events_that_are_held_leave_when_the_moment_is_over() -> None:
    connection = connect(gather_seconds=0.001)
    for word in ("one", "two"):
        connection.push(word)
        assert await connection.has_news()
        assert take_all(connection) == [word]


async def test_closing_does_not_wait_for_more() -> None:
    connection = connect()
    connection.push("started")
    assert await connection.has_news()
    take_all(connection)
    connection.push("last words")
    connection.close(1001, "the gateway ends")
    assert await connection.has_news()
    assert take_all(connection) == ["last words"]
    assert not await connection.has_news()


async def test_connections_take_turns_while_one_of_them_floods() -> None:
    """Each connection has frames that arrived already; the order in which they are answered is counted."""
    answered: list[str] = []

    class Endpoint(SocketEndpoint):
        def __init__(self) -> None:
            """Serve no gateway: only the order of the requests is of interest."""
            self._steps = StepQueue()

        async def _answer(self, connection: Connection, request: RequestFrame) -> None:
            answered.append(request.id)
            connection.open_requests -= 1

    async def read(name: str, count: int) -> None:
        frames = iter([f'{{"type":"req","id":"{name}","method":"health","params":{{}}}}'] * count)

        async def receive() -> dict[str, Any]:
            text = next(frames, None)
            return {"type": "websocket.disconnect"} if text is None else {"type": "websocket.receive", "text": text}

        async def send(message: Any) -> None:
            """Nothing is sent."""

        socket = WebSocket({"type": "websocket"}, receive, send)
        socket.client_state = WebSocketState.CONNECTED
        connection = Connection(
            name, Principal("t", "test", frozenset[Scope]()), ClientFacts(), EventHub("e"), lambda: None
        )
        async with anyio.create_task_group() as tasks:
            with suppress(WebSocketDisconnect):
                await Endpoint()._read_requests(connection, socket, tasks)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, "flood", 50)
        tasks.start_soon(read, "other", 3)
    assert Counter(answered) == {"flood": 50, "other": 3}
    last = len(answered) - answered[::-1].index("other")
    assert last <= 2 * 3 + 2
