"""Clients that send slowly or too much, and requests that wait while their token is revoked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream

from retinue.testing.replies import Fault, breaks
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, wait_until

pytestmark = pytest.mark.anyio

SHORT = 100
"""A limit in milliseconds that only requests exceed that never end."""


@pytest.fixture
async def connection(quiet_hall: Hall, request: pytest.FixtureRequest) -> AsyncIterator[SocketStream]:
    """A connection to a gateway with the HTTP settings of the test's parameter."""
    quiet_hall.config["gateway"] = {"http": request.param}
    async with quiet_hall.serving():
        host, port = quiet_hall.host.split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            yield stream


def head(hall: Hall, *lines: str) -> bytes:
    common = (f"Host: {hall.host}", f"Authorization: Bearer {hall.local_token}", "Content-Type: application/json")
    return "\r\n".join(["POST /rpc/health HTTP/1.1", *common, *lines, "", ""]).encode()


async def drip(stream: SocketStream) -> bytes:
    """Send a byte now and then until the server responds; return the whole response."""
    response = b""
    with anyio.fail_after(PATIENCE):
        while not response:
            with anyio.move_on_after(SHORT / 1000 / 4):
                response = await stream.receive()
            if not response:
                await stream.send(b"x")
        while True:
            try:
                response += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return response


def read_error(response: bytes) -> Any:
    return json.loads(response.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("connection", [{"headerTimeoutMs": SHORT}], indirect=True)
async def test_headers_that_arrive_byte_by_byte_are_refused_in_time(connection: SocketStream) -> None:
    await connection.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
    response = await drip(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert read_error(response)["code"] == "timed_out"
    assert "gateway.http.headerTimeoutMs" in read_error(response)["message"]


@pytest.mark.parametrize("connection", [{"bodyTimeoutMs": SHORT}], indirect=True)
@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
async def test_a_body_that_arrives_byte_by_byte_is_refused_in_time(
    quiet_hall: Hall, connection: SocketStream, framing: str
) -> None:
    await connection.send(head(quiet_hall, framing))
    if "chunked" in framing:
        await connection.send(b"ffff\r\n")
    response = await drip(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert read_error(response)["code"] == "timed_out"


@pytest.mark.parametrize("connection", [{"headerTimeoutMs": 60_000}], indirect=True)
async def test_a_second_request_on_a_connection_has_its_own_time(quiet_hall: Hall, connection: SocketStream) -> None:
    for _ in range(2):
        await connection.send(head(quiet_hall, "Content-Length: 2")[:-2])
        await connection.send(b"\r\n{}")
        with anyio.fail_after(PATIENCE):
            assert (await connection.receive()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("connection", [{}], indirect=True)
async def test_a_client_reads_the_413_although_it_sends_everything_first(
    quiet_hall: Hall, connection: SocketStream
) -> None:
    size = 80 * 1024 * 1024
    piece = b"x" * 1024 * 1024
    await connection.send(head(quiet_hall, f"Content-Length: {size}"))
    with anyio.fail_after(PATIENCE):
        for _ in range(size // len(piece)):
            await connection.send(piece)
        response = b""
        while b"\r\n\r\n" not in response or b"}}" not in response:
            response += await connection.receive()
    assert response.startswith(b"HTTP/1.1 413 ")
    assert read_error(response)["code"] == "too_large"


@pytest.mark.parametrize("connection", [{}], indirect=True)
async def test_a_client_that_has_not_sent_its_body_reads_the_413(quiet_hall: Hall, connection: SocketStream) -> None:
    await connection.send(head(quiet_hall, "Content-Length: 999999999"))
    with anyio.fail_after(PATIENCE):
        assert (await connection.receive()).startswith(b"HTTP/1.1 413 ")
        await connection.send(b"the server still reads")


def ask(*, stream: bool) -> dict[str, Any]:
    return {"model": "retinue", "messages": [{"role": "user", "content": "hi"}], "stream": stream}


async def test_events_end_when_their_token_is_revoked(hall: Hall) -> None:
    hall.model.push(breaks(Fault.HANG, "Still going"))
    hall.leaves_turns_running = True
    token = hall.token(Scope.ADMIN, name="reader")
    received = ""
    async with (
        hall.http(token) as client,
        client.stream("POST", "/v1/chat/completions", json=ask(stream=True)) as response,
    ):
        with anyio.fail_after(PATIENCE):
            async for text in response.aiter_text():
                before, received = received, received + text
                if "Still" in received and "Still" not in before:
                    with hall.book() as book:
                        book.revoke("reader")
    assert "The token was revoked" in received
    assert received.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/rpc/agent.wait"])
async def test_a_request_that_waits_ends_when_its_token_is_revoked(hall: Hall, path: str) -> None:
    hall.model.push(breaks(Fault.HANG, "Still going"))
    hall.leaves_turns_running = True
    token = hall.token(Scope.ADMIN, name="waiter")
    body = ask(stream=False)
    async with hall.http(token) as client, anyio.create_task_group() as tasks:
        if path == "/rpc/agent.wait":
            accepted = await client.post("/rpc/agent", json={"message": "hi", "idempotencyKey": "1"})
            body = {"runId": accepted.json()["runId"], "timeoutMs": 600_000}
        answers: list[httpx2.Response] = []

        async def post() -> None:
            answers.append(await client.post(path, json=body))

        tasks.start_soon(post)
        await wait_until(lambda: len(hall.model.model_requests) == 1)
        with hall.book() as book:
            book.revoke("waiter")
        await wait_until(lambda: bool(answers))
    assert answers[0].status_code == 401
