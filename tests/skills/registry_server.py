"""A registry that is served on loopback for tests, with faults between its answers and the network."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retinue.core.clock import SystemClock
from retinue.gateway.skill_registry.app import make_registry_app
from retinue.skills.registry.folder import RegistryFolder


class FaultyNetwork:
    """Passes requests on, and damages the next answers to a path as a test wants.

    `busy` answers 429 that many times, `cut` ends answers after these many bytes, `replaced` is sent instead of a file.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.busy = 0
        self.cut: list[int] = []
        self.replaced = b""
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["method"], scope["path"], headers))
        is_download = scope["path"] == "/api/v1/download"
        if is_download and self.busy:
            self.busy -= 1
            limits = [(b"retry-after", b"1"), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 429, "headers": limits})
            await send({"type": "http.response.body", "body": b"Rate limit exceeded"})
            return
        cut = self.cut.pop(0) if is_download and self.cut else None

        async def damage(message: Message) -> None:
            body = message.get("body", b"")
            if cut is not None and body:
                await send({**message, "body": body[:cut], "more_body": True})
                raise ConnectionAbortedError("cut by the test")
            if is_download and self.replaced:
                length = (b"content-length", str(len(self.replaced)).encode())
                is_start = message["type"] == "http.response.start"
                message = {**message, "headers": [length]} if is_start else {**message, "body": self.replaced}
            await send(message)

        await self._app(scope, receive, damage)


class TestRegistry:
    """A running registry: its address, its folder and its network."""

    __test__ = False

    def __init__(self, address: str, folder: RegistryFolder, network: FaultyNetwork) -> None:
        self.address = address
        self.folder = folder
        self.network = network


@contextmanager
def serve(path: Path, **options: Any) -> Iterator[TestRegistry]:
    """Serve a folder as a registry in a thread."""
    path.mkdir(parents=True, exist_ok=True)
    folder = RegistryFolder(path, SystemClock())
    network = FaultyNetwork(make_registry_app(folder, **options))
    server = uvicorn.Server(uvicorn.Config(network, port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield TestRegistry(f"http://127.0.0.1:{port}", folder, network)
    finally:
        server.should_exit = True
        thread.join()
