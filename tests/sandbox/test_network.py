"""The network of a sandbox: none, or the checked proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from retinue.security.network import Policy
from tests.sandbox.workbench import Bench
from tests.webserver import WebServer, web_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def unwrap(told: str) -> str:
    """What came from the network, which is marked as such, without the marks."""
    _, marked, after = told.partition("\n---\n")
    said, end, _ = after.rpartition("\n<<<END_EXTERNAL_UNTRUSTED_CONTENT")
    assert marked
    assert end
    return said


async def test_the_network_is_off(bench: Bench) -> None:
    async with web_server() as server:
        told = await bench.run(f"curl -sS -m 5 {server.url}/hello; echo $?")
    assert unwrap(told).splitlines()[-1] == "7"
    assert server.requests == []


@dataclass
class NearServer(WebServer):
    """On an address of this machine that programs do not take for their own, and so ask the proxy for."""

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    @property
    def place(self) -> str:
        return f"127.0.0.2:{self.port}"


@asynccontextmanager
async def near_server() -> AsyncIterator[NearServer]:
    web = NearServer(0)
    async with await asyncio.start_server(web.accept, "127.0.0.2", 0) as server:
        web.port = server.sockets[0].getsockname()[1]
        yield web


@asynccontextmanager
async def reachable(bench: Bench) -> AsyncIterator[NearServer]:
    """A web server that the policy makes an exception for."""
    async with near_server() as server:
        bench.policy = Policy(allow=frozenset({server.place}))
        bench.settings |= {"network": "proxy", "allowHosts": [server.place]}
        yield server


async def test_curl_reaches_a_public_host_through_the_proxy(bench: Bench) -> None:
    async with reachable(bench) as server:
        server.on("/hello", "world")
        plain = await bench.run(f"curl -sS {server.url}/hello")
        tunnelled = await bench.run(f"curl -sS -p {server.url}/hello")
    assert (unwrap(plain), unwrap(tunnelled)) == ("world", "world")


async def test_every_program_of_a_pipeline_has_the_network(bench: Bench) -> None:
    async with reachable(bench) as server:
        server.on("/hello", "world")
        told = await bench.run(f"curl -sS {server.url}/hello | (cat; curl -sS {server.url}/hello)")
    assert unwrap(told) == "worldworld"


async def test_python_programs_use_the_proxy(bench: Bench) -> None:
    async with reachable(bench) as server:
        server.on("/hello", "world")
        script = f"import urllib.request as r; print(r.urlopen('{server.url}/hello').read().decode())"
        (bench.workspace / "get.py").write_text(script)
        assert await bench.run("/usr/bin/python3 get.py") == "world"


async def test_the_proxy_refuses_what_the_address_check_forbids(bench: Bench) -> None:
    async with near_server() as server:
        bench.settings |= {
            "network": "proxy",
            "allowHosts": [server.place, "*.internal", "169.254.169.254", "10.0.0.1"],
        }
        for url in (server.url, "http://169.254.169.254/latest", "http://10.0.0.1", "http://metadata.google.internal"):
            told = await bench.run(f"curl -sS -o /dev/null -w '%{{http_code}}' {url}")
            assert unwrap(told) == "403"
    assert server.requests == []


async def test_nothing_but_the_proxy_is_reachable(bench: Bench) -> None:
    async with reachable(bench) as server:
        told = await bench.run(f"curl -sS -m 5 --noproxy '*' {server.url}/hello; echo $?")
    assert unwrap(told).splitlines()[-1] == "7"
    assert server.requests == []
