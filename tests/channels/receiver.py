"""The receiver of the HTTP channel: a webhook that can crash and restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.webserver import Request, WebServer

PATIENCE = 60.0


@dataclass
class Receiver:
    """Keeps what it was sent; while `down` it breaks every connection without a word, after reading what came."""

    web: WebServer
    down: bool = False
    status: int = 200
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    raw: list[Request] = field(default_factory=list)
    refused: int = 0

    @property
    def url(self) -> str:
        return f"{self.web.url}/hook"

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.down or self.status != 200:
            self.refused += 1
            if not self.down:
                writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            return
        self.raw.append(request)
        self.deliveries.append(json.loads(request.body))
        writer.write(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Everything that came, once there is as much."""
        with anyio.fail_after(PATIENCE):
            while len(self.deliveries) < count:
                await anyio.sleep(0.01)
        return self.deliveries

    async def until_refused(self, count: int) -> None:
        with anyio.fail_after(PATIENCE):
            while self.refused < count:
                await anyio.sleep(0.01)


@asynccontextmanager
async def open_receiver() -> AsyncIterator[Receiver]:
    from tests.webserver import web_server

    async with web_server() as web:
        receiver = Receiver(web)
        web.answers["/hook"] = receiver.answer
        yield receiver
