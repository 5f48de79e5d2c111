"""Gateways that really listen: in this process for most tests, in one of their own where a process must die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect

from retinue.client import Client, GatewayAddress, open_client
from retinue.core.clock import SystemClock
from retinue.gateway.auth.tokens import TokenStore
from retinue.gateway.server import run_gateway
from retinue.gateway.shutdown import ShutdownRequest
from retinue.runtime.home import load_home
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import find_instance, read_local_token
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says
from retinue.wire.protocol import Scope

PATIENCE = 60.0
"""Only something that hangs takes this long."""


@dataclass
class Hall:
    """A home with a gateway and a model behind it."""

    home: HomePaths
    model: ModelServer
    config: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    leaves_turns_running: bool = False
    """The shutdown does not wait for turns: a test left one whose model call hangs."""

    def write_config(self, **more: Any) -> None:
        provider = {
            "baseUrl": f"{self.model.url}/v1",
            "api": "openai-completions",
            "apiKey": "secret-key-0123456789",
            "models": [{"id": "test-model", "contextWindow": 100_000}, {"id": "other", "contextWindow": 100_000}],
        }
        config = {
            "models": {"providers": {"test": provider}},
            "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
            "messages": {"queue": {"mode": "followup", "debounceMs": 0, "cap": 500}},
            **self.config,
            **more,
        }
        self.home.path.mkdir(parents=True, exist_ok=True)
        fresh = self.home.path / "config.fresh"
        fresh.write_text(json.dumps(config))
        fresh.replace(self.home.config_file)

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home.path.parent), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def socket_url(self) -> str:
        return f"ws://{self.host}/ws"

    @contextmanager
    def book(self) -> Iterator[TokenStore]:
        database = SqliteDatabase(self.home.path / DATABASE_NAME)
        try:
            yield TokenStore(database, SystemClock())
        finally:
            database.close()

    def token(self, *scopes: Scope, name: str = "test") -> str:
        with self.book() as book:
            return book.create(name, scopes)[1]

    @property
    def local_token(self) -> str:
        return read_local_token(self.home) or ""

    @asynccontextmanager
    async def client(self, token: str | None = None, *, asks: bool = False) -> AsyncIterator[Client]:
        async with open_client(
            GatewayAddress(self.url, lambda: token or self.local_token, "test", asks=asks)
        ) as client:
            yield client

    @asynccontextmanager
    async def http(self, token: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"Authorization": f"Bearer {token or self.local_token}"}
        # Without `verify=False` each client reads the certificates of the system, which takes longer than a request.
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE, verify=False) as client:
            yield client

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """A gateway in this process."""
        self.write_config()
        foundation = load_home(self.home, environment=self.environment)
        assert not foundation.loaded.errors, foundation.loaded.problems
        ending = ShutdownRequest()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_gateway, foundation, 0, ending)
            self.url = await wait_until_listening(self.home)
            try:
                yield
            finally:
                ending.request("the test is over")
                if self.leaves_turns_running:
                    ending.request("its turns do not end")


async def wait_until(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not happened():
            await anyio.sleep(0.005)


async def wait_until_listening(home: HomePaths) -> str:
    with anyio.fail_after(PATIENCE):
        while (found := find_instance(home)) is None or not found.url:
            await anyio.sleep(0.005)
    return found.url


@dataclass
class GatewayProcess:
    """A gateway in a process of its own."""

    hall: Hall
    process: subprocess.Popen[bytes]

    async def ended(self) -> int:
        with anyio.fail_after(PATIENCE):
            while self.process.poll() is None:
                await anyio.sleep(0.005)
        return self.process.returncode

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()


WITHOUT_UVLOOP = ("-c", "import sys; sys.modules['uvloop'] = None; from retinue.cli.main import main; main()")
"""Arguments of Python that run Retinue as if uvloop were not installed."""


@asynccontextmanager
async def gateway_process(
    hall: Hall, *arguments: str, program: Sequence[str] = ("-m", "retinue"), **variables: str
) -> AsyncIterator[GatewayProcess]:
    argv = [sys.executable, *program, "gateway", "run", "--port", "0", "--home", str(hall.home.path), *arguments]
    output = hall.home.path.parent / "gateway.out"
    with output.open("ab") as file:
        process = subprocess.Popen(argv, env={**hall.environment, **variables}, stdout=file, stderr=file)
    try:
        with anyio.fail_after(PATIENCE):
            while (found := find_instance(hall.home)) is None or found.pid != process.pid or not found.url:
                assert process.poll() is None, output.read_text()
                await anyio.sleep(0.005)
        hall.url = found.url
        yield GatewayProcess(hall, process)
    finally:
        process.kill()
        process.wait()


@dataclass
class RawSocket:
    """A client that says exactly what it is told, and keeps the events that come in between."""

    socket: ClientConnection
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0

    async def send(self, frame: Any) -> None:
        await self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def receive(self) -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            frame: dict[str, Any] = json.loads(await self.socket.recv())
        return frame

    async def response(self, identity: str) -> dict[str, Any]:
        while True:
            frame = await self.receive()
            if frame["type"] == "res" and frame["id"] == identity:
                return frame
            if frame["type"] == "event":
                self.events.append(frame)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        identity = str(self._number)
        await self.send({"type": "req", "id": identity, "method": method, "params": params})
        return await self.response(identity)

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        response = await self.call(method, **params)
        assert response["ok"], response
        payload: dict[str, Any] = response["payload"]
        return payload

    async def next_event(self) -> dict[str, Any]:
        while not self.events:
            frame = await self.receive()
            assert frame["type"] == "event", frame
            self.events.append(frame)
        return self.events.pop(0)

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the first of a kind of turn event."""
        seen = []
        while True:
            event = await self.next_event()
            seen.append(event)
            if event["event"] == "turn" and event["payload"]["event"]["type"] == kind:
                return seen


@asynccontextmanager
async def raw_socket(hall: Hall, token: str | None = None, **options: Any) -> AsyncIterator[RawSocket]:
    """A socket that has said `connect` and was let in."""
    async with connect(
        hall.socket_url, proxy=None, compression=None, max_size=None, max_queue=None, **options
    ) as socket:
        raw = RawSocket(socket)
        await raw.send(
            {
                "type": "req",
                "id": "hello",
                "method": "connect",
                "params": {"auth": {"token": token or hall.local_token}},
            }
        )
        assert (await raw.response("hello"))["ok"]
        yield raw


@asynccontextmanager
async def open_hall(path: Path, **config: Any) -> AsyncIterator[Hall]:
    async with ModelServer(then=says("Hello.")) as model:
        yield Hall(HomePaths(path / "home"), model, config)


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    """A gateway that serves, and a model that says hello."""
    async with open_hall(tmp_path) as made, made.serving():
        yield made


@pytest.fixture
async def quiet_hall(tmp_path: Path) -> AsyncIterator[Hall]:
    """A home whose gateway does not run yet."""
    async with open_hall(tmp_path) as made:
        made.write_config()
        yield made
