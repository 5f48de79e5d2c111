"""The proxy's reading of requests, its list of hosts, and how it answers."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import anyio
import pytest
from anyio.abc import SocketStream

from retinue.sandbox.proxy import BadRequest, NetworkRules, ProxyRequest, is_allowed, parse_request, serve_network
from retinue.security.network import Address, Policy
from tests.webserver import WebServer, web_server


@pytest.mark.parametrize(
    ("hosts", "host", "port", "allowed"),
    [
        ((), "example.com", 443, True),
        ((), "example.com", 80, True),
        ((), "example.com", 22, False),
        (("downloads.example.org",), "downloads.example.org", 443, True),
        (("downloads.example.org",), "Downloads.Example.org.", 443, True),
        (("downloads.example.org",), "evil-downloads.example.org", 443, False),
        (("downloads.example.org",), "downloads.example.org.evil.com", 443, False),
        (("downloads.example.org",), "downloads.example.org", 8443, False),
        (("downloads.example.org:8443",), "downloads.example.org", 8443, True),
        (("downloads.example.org:8443",), "downloads.example.org", 443, False),
        (("*.example.com",), "a.example.com", 443, True),
        (("*.example.com",), "a.b.example.com", 443, True),
        (("*.example.com",), "example.com", 443, False),
        (("*.example.com",), "aexample.com", 443, False),
        (("*.example.com:81",), "a.example.com", 81, True),
        (("[2001:db8::1]:444",), "2001:db8::1", 444, True),
        (("2001:db8::1",), "2001:db8::1", 443, True),
        (("example.org:²",), "example.org", 443, False),
    ],
)
def test_the_list_of_hosts(hosts: tuple[str, ...], host: str, port: int, allowed: bool) -> None:
    assert is_allowed(hosts, host, port) is allowed


def test_a_tunnel_names_host_and_port() -> None:
    assert parse_request(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x") == ProxyRequest("example.com", 443)
    assert parse_request(b"CONNECT [2001:db8::1]:443 HTTP/1.1") == ProxyRequest("2001:db8::1", 443)


def test_a_plain_request_is_rewritten_for_its_host() -> None:
    head = (
        b"GET http://example.com:81/a?b=c HTTP/1.1\r\nHost: other.com\r\nProxy-Authorization: x\r\n"
        b"Proxy-Connection: keep-alive\r\nConnection: keep-alive\r\nAccept: */*"
    )
    request = parse_request(head)
    assert (request.host, request.port) == ("example.com", 81)
    assert request.forward == (
        b"GET /a?b=c HTTP/1.1\r\nHost: example.com:81\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"GET", b"GET / HTTP/1.1", b"GET /x", b"CONNECT example.com HTTP/1.1", b"CONNECT :443 HTTP/1.1"),
        *(b"GET https://example.com/ HTTP/1.1", b"GET ftp://example.com/ HTTP/1.1", b"GET http:///x HTTP/1.1"),
        *(b"GET http://user:pw@example.com/ HTTP/1.1", b"GET http://example.com:99999/ HTTP/1.1"),
        *(b"CONNECT example.com:x HTTP/1.1", b"GET http://example.com/ HTTP/2", b"CONNECT [::1:443 HTTP/1.1"),
    ],
)
def test_other_requests_are_refused(head: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_request(head)


@asynccontextmanager
async def proxy(rules: NetworkRules) -> AsyncIterator[int]:
    """Serve one listening socket through the proxy; yield its port."""
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_network, ours, rules)
            socket.send_fds(theirs, [b"!"], [listening.fileno()])
            yield port
            theirs.close()


async def talk(port: int, data: bytes) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(data)
        return await receive_all(client)


async def receive_all(client: SocketStream) -> bytes:
    received = b""
    with anyio.fail_after(20):
        async for chunk in client:
            received += chunk
    return received


def rules_for(server: WebServer, *hosts: str) -> NetworkRules:
    async def resolve(host: str, port: int) -> tuple[Address, ...]:
        return (ip_address("127.0.0.1"),)

    return NetworkRules(
        hosts=(f"site.test:{server.port}", *hosts),
        policy=Policy(allow=frozenset({f"site.test:{server.port}"})),
        resolve=resolve,
    )


@pytest.mark.anyio
async def test_requests_and_tunnels_reach_the_host() -> None:
    async with web_server() as server, proxy(rules_for(server)) as port:
        server.on("/x", "hello")
        plain = await talk(port, f"GET http://site.test:{server.port}/x HTTP/1.1\r\n\r\n".encode())
        assert plain.endswith(b"\r\n\r\nhello")
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            await client.send(f"CONNECT site.test:{server.port} HTTP/1.1\r\n\r\n".encode())
            assert (await client.receive()).startswith(b"HTTP/1.1 200")
            await client.send(b"GET /x HTTP/1.1\r\nHost: site.test\r\n\r\n")
            assert (await receive_all(client)).endswith(b"hello")
    assert [request.headers["host"] for request in server.requests] == [f"site.test:{server.port}", "site.test"]


@pytest.mark.anyio
async def test_a_body_is_passed_on() -> None:
    async with web_server() as server, proxy(rules_for(server)) as port:
        server.on("/x", "thanks")
        head = f"POST http://site.test:{server.port}/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"
        assert (await talk(port, head.encode())).endswith(b"thanks")
    assert server.requests[0].body == b"body"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("CONNECT other.test:443", b"403"),
        ("CONNECT rebinding.test:443", b"403"),
        ("CONNECT 127.0.0.1:443", b"403"),
        ("GET http://2130706433/", b"403"),
        ("nonsense", b"400"),
    ],
)
async def test_refusals_say_why(target: str, status: bytes) -> None:
    async with web_server() as server, proxy(rules_for(server, "rebinding.test", "127.0.0.1", "2130706433")) as port:
        answer = await talk(port, f"{target} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.rpartition(b"\r\n\r\n")[2].strip().endswith(b".")
    assert server.requests == []


@pytest.mark.anyio
async def test_a_host_that_does_not_answer_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    gone = WebServer(free)
    async with proxy(rules_for(gone)) as port:
        answer = await talk(port, f"CONNECT site.test:{free} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 502")


@pytest.mark.anyio
async def test_a_head_without_end_is_cut_off() -> None:
    async with web_server() as server, proxy(rules_for(server)) as port:
        answer = await talk(port, b"GET http://site.test/" + b"x" * 200_000)
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.anyio
async def test_the_proxy_ends_with_its_socket() -> None:
    async with web_server() as server:
        with anyio.fail_after(20):
            async with proxy(rules_for(server)) as port:
                client = await anyio.connect_tcp("127.0.0.1", port)
                await client.send(b"GET http://never-finished")
        await client.aclose()
