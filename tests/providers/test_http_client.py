"""The rules for endpoints that the operator configured."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import ConfigError
from retinue.core.messages import said
from retinue.core.model import Failure, ModelFailed, ModelInfo, ModelRef, ModelRequest
from retinue.providers.apis.openai_chat import make_provider
from retinue.providers.base import Credential, Endpoint, Timeouts
from retinue.providers.failures import CallFailed
from retinue.providers.http_client import (
    MAX_BODY_BYTES,
    BodyLimits,
    EndpointClient,
    EventParser,
    check_endpoint,
    open_client,
)
from retinue.security.http1 import NoResponse
from retinue.testing.modelserver import ModelServer
from tests.webserver import web_server


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434", "http://10.0.0.5/v1", "https://api.example.com/v1", "http://[::1]:8080"]
)
def test_private_and_public_endpoints_may_be_used(url: str) -> None:
    assert check_endpoint(url + "/") == url


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://0.0.0.0/",
        "http://2852039166/",
        "http://0xa9.254.169.254/",
        "file:///etc/passwd",
        "ftp://example.com",
        "example.com/v1",
        "https://user:password@example.com/v1",
        "http://metadata.google.internal/",
        "http://instance-data.ec2.internal/",
        "http://[fe80::1%25eth0]/",
        "http://①⑥⑨.254.169.254/",
    ],
)
def test_endpoints_that_can_never_be_right_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_endpoint(url)


@pytest.mark.anyio
async def test_the_address_behind_a_name_is_checked_before_it_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to a forbidden address: here loopback is declared forbidden, as no metadata service is near."""
    loopback = frozenset({ipaddress.ip_address("127.0.0.1")})
    monkeypatch.setattr("retinue.security.network._METADATA", loopback)
    async with ModelServer() as server, open_client(Timeouts()) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get(f"http://localhost:{server.port}/api/tags")
        assert caught.value.reason is Failure.CONNECTION
        direct = EndpointClient(Timeouts())
        with pytest.raises(CallFailed) as caught:
            await direct.post(f"http://localhost:{server.port}/v1/chat/completions", b"{}", {})
        await direct.aclose()
        assert caught.value.reason is Failure.CONNECTION
        assert not server.requests


@pytest.mark.anyio
async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer() as server, ModelServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with open_client(Timeouts()) as client:
            assert (await client.get(f"{server.url}/api/tags")).status_code == 200
        assert not proxy.requests


@pytest.mark.anyio
async def test_an_endpoint_cannot_send_a_key_elsewhere() -> None:
    async with web_server() as there, web_server() as elsewhere:
        there.redirect("/v1/chat/completions", f"{elsewhere.url}/v1/chat/completions", 307)
        endpoint = Endpoint("box", "openai-completions", f"{there.url}/v1", describe=ModelInfo)
        provider = make_provider(endpoint)
        request = ModelRequest(ModelRef("box", "m"), "", "", (said("hi"),))
        events = [event async for event in provider.stream(request, Credential("box:default", "s3cret-key-value"))]
        await provider.aclose()
    assert isinstance(events[-1], ModelFailed)
    assert not elsewhere.requests
    assert "s3cret-key-value" in there.requests[0].headers["authorization"]


@pytest.mark.slow
@pytest.mark.anyio
async def test_headers_and_compressed_bodies_are_bounded() -> None:
    bomb = gzip.compress(b"a" * (MAX_BODY_BYTES + 1))
    async with web_server() as web, open_client(Timeouts()) as client:
        web.on("/bomb", bomb, content_encoding="gzip")
        web.on("/headers", "x", x_long="a" * 70_000)
        direct = EndpointClient(Timeouts())
        for path in ("/bomb", "/headers"):
            with pytest.raises(CallFailed):
                await client.get(web.url + path)
            with pytest.raises(CallFailed):
                await direct.post(web.url + path, b"{}", {})
        await direct.aclose()


@pytest.mark.anyio
async def test_headers_of_an_endpoint_replace_the_common_ones_and_a_call_replaces_both() -> None:
    async with web_server() as web:
        web.on("/", "x")
        client = EndpointClient(Timeouts(), {"User-Agent": "mine", "X-Team": "blue"})
        async with await client.post(f"{web.url}/", b"{}", {"x-team": "red"}) as response:
            assert (response.status, await response.read()) == (200, "x")
        await client.aclose()
    sent = web.requests[0].headers
    assert (sent["user-agent"], sent["x-team"], sent["accept-encoding"]) == ("mine", "red", "identity")


@given(
    st.lists(st.sampled_from(["a", "ä b", ": c", " d", ""]), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 120), max_size=20),
)
def test_events_are_the_same_however_their_stream_is_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    lines = [line for text in texts for line in (": comment", "event: e", f"data: {text}", f"data:{text}", "")]
    stream = end.join([*lines, "data: incomplete"])
    ends = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    parser = EventParser()
    found = [event for at, to in pairwise(ends) for event in parser.feed(stream[at:to])]
    assert found == [f"{text}\n{text.removeprefix(' ')}" for text in texts]


def test_a_line_may_be_long_but_not_endless() -> None:
    gauge = BodyLimits(max_line_bytes=10, max_body_bytes=1000)
    for _ in range(5):
        gauge.measure(b"123456789\n12345")
        gauge.measure(b"6789\n")
    gauge.measure(b"12345")
    gauge.measure(b"12345")
    with pytest.raises(CallFailed):
        gauge.measure(b"1")


def test_a_body_has_an_end() -> None:
    gauge = BodyLimits(max_line_bytes=10, max_body_bytes=20)
    gauge.measure(b"123456\n" * 2)
    with pytest.raises(CallFailed):
        gauge.measure(b"123456\n")


def test_characters_may_be_split_but_not_broken() -> None:
    gauge = BodyLimits()
    for byte in "世界".encode():
        gauge.measure(bytes([byte]))
    with pytest.raises(CallFailed):
        gauge.measure(b"\xff")


@pytest.mark.anyio
@pytest.mark.parametrize("answers", [1, 0])
async def test_only_a_kept_connection_that_the_server_closes_is_replaced(answers: int) -> None:
    """A server that reads the next request on a connection and closes it without an answer."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers):
            await reader.readuntil(b"{}")
            writer.write(answer)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"{}")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(lambda *ends: served.append(asyncio.create_task(serve(*ends))), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    client = EndpointClient(Timeouts())
    try:
        for _ in range(2 * answers):
            async with await client.post(url, b"{}", {}) as response:
                assert await response.read() == "{}"
        if not answers:
            with pytest.raises(NoResponse):
                await client.post(url, b"{}", {})
    finally:
        await client.aclose()
        server.close()
        await asyncio.gather(*served, return_exceptions=True)
    assert len(served) == (2 if answers else 1)
