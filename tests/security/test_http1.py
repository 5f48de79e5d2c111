"""The connection for model calls: what it reads does not depend on how the response arrives, and nothing ambiguous is
read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import h11
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.security.checked_transport import MAX_IDLE_CONNECTIONS, CheckedPool, PooledResponse, Waits
from retinue.security.http1 import MAX_HEAD_BYTES, MAX_WAITING_BYTES, BadResponse, NoResponse, ResponseParser
from retinue.security.network import OPERATOR, NetworkFailed

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

WAITS = Waits(connect=60.0, idle=60.0)
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def chunked(parts: list[bytes], extension: bytes, trailers: bytes) -> bytes:
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts if part)
    return b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailers + b"\r\n"


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    before = draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"]))
    status = draw(st.sampled_from([b"200 OK", b"200", b"429 Too Many Requests", b"500 \xe4", b"204 No Content"]))
    fields = draw(st.sampled_from([b"", b"X-A:  b \t\r\nX-A:c\r\nx-empty:\r\n", b"Connection: keep-alive, Close\r\n"]))
    parts = draw(st.lists(st.binary(max_size=30), max_size=4))
    body = b"".join(parts)
    kinds = [b"Content-Length: %d\r\n\r\n%b" % (len(body), body)]
    if status[:3] != b"204":
        extension = draw(st.sampled_from([b"", b";a=b", b" "]))
        kinds += [chunked(parts, extension, draw(st.sampled_from([b"", b"X-T: 1\r\n"]))), b"\r\n" + body]
    return before + b"HTTP/1.1 " + status + b"\r\n" + fields + draw(st.sampled_from(kinds))


def read_with_library(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    connection.receive_data(b"")
    status, headers, body = 0, [], b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status, headers = event.status_code, list(event.headers)
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
    return status, headers, body


@given(responses(), st.lists(st.integers(0, 300), max_size=12))
def test_a_response_is_the_same_however_it_arrives_and_as_h11_reads_it(data: bytes, cuts: list[int]) -> None:
    parser = ResponseParser()
    body = b""
    for start, end in pairwise(sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})):
        body += b"".join(parser.feed(data[start:end]))
    if not parser.is_complete:
        parser.finish()
    lowered = [(name.lower(), value) for name, value in parser.headers]
    assert (parser.status, lowered, body) == read_with_library(data)
    assert parser.is_complete


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 99 No\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nspace : a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD_BYTES,
    ],
)
def test_a_response_that_is_ambiguous_or_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse):
        ResponseParser().feed(data)


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 200 OK\r\n", HELLO[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"]
)
def test_a_response_that_is_cut_off_is_no_response(data: bytes) -> None:
    parser = ResponseParser()
    parser.feed(data)
    with pytest.raises(BadResponse):
        parser.finish()


@pytest.mark.parametrize(
    ("data", "reusable"),
    [
        (HELLO, True),
        (HELLO + b"more", False),
        (HELLO.replace(b"1.1", b"1.0"), False),
        (HELLO.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
    ],
)
def test_a_connection_is_used_again_only_if_it_is_clear_where_the_response_ends(data: bytes, reusable: bool) -> None:
    parser = ResponseParser()
    parser.feed(data)
    assert parser.is_complete
    assert parser.allows_reuse is reusable


class Peer:
    """A server that counts its connections and answers each request with what it is told."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[Peer, CheckedPool, httpx2.URL]]:
    peer, pool = Peer(serve), CheckedPool(OPERATOR)
    async with await asyncio.start_server(peer.accept, "127.0.0.1", 0) as server:
        yield peer, pool, httpx2.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await pool.aclose()


async def post(pool: CheckedPool, url: httpx2.URL, waits: Waits = WAITS) -> PooledResponse:
    return await pool.post(url, [(b"host", url.netloc), (b"content-length", b"2")], b"{}", waits)


async def read(response: PooledResponse) -> bytes:
    parts = []
    while part := await response.receive():
        parts.append(part)
    response.close()
    return b"".join(parts)


async def read_request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n{}")


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await read_request(reader)
        writer.write(HELLO)


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(HELLO)
    await writer.drain()


@pytest.mark.anyio
async def test_requests_follow_each_other_on_one_connection() -> None:
    async with serving(answer_all) as (peer, pool, url):
        assert [await read(await post(pool, url)) for _ in range(3)] == [b"hello"] * 3
        assert peer.connections == 1


@pytest.mark.anyio
async def test_a_connection_that_the_server_closed_or_that_was_not_read_to_the_end_is_replaced() -> None:
    async with serving(answer_once) as (peer, pool, url):
        for _ in range(3):
            assert await read(await post(pool, url)) == b"hello"
            await asyncio.sleep(0.01)
        assert peer.connections == 3
    async with serving(answer_all) as (peer, pool, url):
        (await post(pool, url)).close()
        assert await read(await post(pool, url)) == b"hello"
        assert peer.connections == 2


@pytest.mark.anyio
async def test_a_kept_connection_that_ends_instead_of_answering_is_replaced_and_a_new_one_is_not() -> None:
    async def answer_and_hang_up_at_the_next(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_once(reader, writer)
        await read_request(reader)

    async with serving(answer_and_hang_up_at_the_next) as (peer, pool, url):
        assert [await read(await post(pool, url)) for _ in range(3)] == [b"hello"] * 3
        assert peer.connections == 3

    async with serving(lambda reader, _: read_request(reader)) as (peer, pool, url):
        with pytest.raises(NoResponse):
            await post(pool, url)
        assert peer.connections == 1


@pytest.mark.anyio
async def test_a_pool_keeps_a_bounded_number_of_connections() -> None:
    ended = 0

    async def answer_and_count_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await answer_once(reader, writer)
        await reader.read()
        ended += 1

    async with serving(answer_and_count_the_end) as (peer, pool, url):
        responses = [await post(pool, url) for _ in range(MAX_IDLE_CONNECTIONS + 2)]
        assert [await read(response) for response in responses] == [b"hello"] * len(responses)
        responses[-1].close()
        while ended < 2:
            await asyncio.sleep(0.01)
        assert (peer.connections, ended) == (MAX_IDLE_CONNECTIONS + 2, 2)


@pytest.mark.anyio
async def test_a_response_that_nobody_asked_for_is_not_given_to_the_next_request() -> None:
    async def answer_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HELLO)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(HELLO.replace(b"hello", b"wrong"))
        await reader.read()

    async with serving(answer_twice) as (peer, pool, url):
        assert await read(await post(pool, url)) == b"hello"
        await asyncio.sleep(0.05)
        assert await read(await post(pool, url)) == b"hello"
        assert peer.connections == 2


@pytest.mark.anyio
async def test_a_silent_server_is_given_up_and_a_cancelled_request_leaves_no_connection() -> None:
    closed = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async with serving(stay_silent) as (_, pool, url):
        with pytest.raises(TimeoutError):
            await post(pool, url, Waits(connect=60.0, idle=0.01))
        await closed.wait()
        closed.clear()
        request = asyncio.create_task(post(pool, url))
        await asyncio.sleep(0.05)
        request.cancel()
        await closed.wait()


@pytest.mark.anyio
async def test_a_server_that_sends_faster_than_the_response_is_read_has_to_wait() -> None:
    part = b"a" * 65_536
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(part) * 500))
        for _ in range(500):
            writer.write(part)
            await writer.drain()
            sent += len(part)

    async with serving(flood) as (_, pool, url):
        response = await post(pool, url)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert MAX_WAITING_BYTES < sent < len(part) * 400
        assert len(await read(response)) == len(part) * 500


@pytest.mark.anyio
async def test_a_header_cannot_contain_another() -> None:
    async with serving(answer_all) as (peer, pool, url):
        with pytest.raises(NetworkFailed):
            await pool.post(url, [(b"x-a", b"b\r\nx-c: d")], b"", WAITS)
        assert peer.connections == 0
