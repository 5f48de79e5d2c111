"""Names whose addresses change from one look-up to the next never lead to an address that was not checked."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from ipaddress import ip_address
from typing import Any

import httpx2
import pytest

from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.providers.http_client import EndpointClient, open_client
from retinue.security.fetch import fetch
from retinue.security.network import MODEL_CHOSEN, AddressRefused, NetworkFailed

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TRIES = 1_000
PUBLIC = ("1.1.1.1", "8.8.8.8", "2606:4700:4700::1111")
PRIVATE = ("127.0.0.1", "10.0.0.1", "192.168.1.1", "::1", "fd00::1", "::ffff:10.0.0.1")
METADATA = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "169.254.0.1")


class Network:
    """The system's resolver giving another answer each time, and a wire that only notes who was dialled."""

    def __init__(self, patch: pytest.MonkeyPatch, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
        self.chance = random.Random("rebinding")
        self.good, self.bad = good, bad
        self.dialled: list[str] = []
        self.asked = 0
        patch.setattr(socket, "getaddrinfo", self.resolve)
        patch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", self.connect)

    def resolve(self, host: str, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        self.asked += 1
        wanted = self.chance.choice((self.good, self.bad, self.good + self.bad))
        found = self.chance.sample(wanted, self.chance.randrange(1, 3))
        return [
            (socket.AF_INET6 if ":" in text else socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port))
            for text in found
        ]

    async def connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.dialled.append(address[0])
        await asyncio.sleep(0)
        raise OSError(errno.ECONNREFUSED, "refused")


async def test_a_url_that_a_model_chose_never_reaches_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, PUBLIC, PRIVATE + METADATA)
    refused = 0
    for number in range(TRIES):
        try:
            scheme = "https" if number % 2 else "http"
            await fetch(f"{scheme}://rebind.example/{number}", policy=MODEL_CHOSEN, max_bytes=10, timeout=30)
        except AddressRefused:
            refused += 1
        except NetworkFailed:
            pass
    assert set(network.dialled) <= set(PUBLIC)
    assert network.asked == TRIES, "a name was looked up twice"
    assert refused > TRIES // 4
    assert len(network.dialled) > TRIES // 8


async def test_a_configured_endpoint_never_reaches_a_metadata_service(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, PUBLIC + PRIVATE, METADATA)
    async with open_client(Timeouts(connect=30.0, idle=30.0)) as client:
        for number in range(TRIES):
            with pytest.raises((CallFailed, httpx2.ConnectError)):
                await client.post(f"https://models.example/{number}", headers={"authorization": "Bearer key"})
    direct = EndpointClient(Timeouts(connect=30.0, idle=30.0))
    for number in range(TRIES):
        with pytest.raises((CallFailed, OSError)):
            await direct.post(f"https://models.example/{number}", b"{}", {"authorization": "Bearer key"})
    assert network.asked == 2 * TRIES, "a name was looked up twice"
    await direct.aclose()
    mapped = {str(ip_address(address)) for address in PUBLIC + PRIVATE}
    assert set(network.dialled) <= set(PUBLIC + PRIVATE) | mapped
    assert len(network.dialled) > TRIES // 8
