"""A home, a model that follows rules, and clients that are real processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio

from retinue.cli import main
from retinue.storage.home_paths import HomePaths
from tests.faults import client
from tests.faults.evidence import Evidence, gather
from tests.faults.server import RuleServer

POLL_SECONDS = 0.002
GIVE_UP_SECONDS = 120.0
"""Only a client that hangs takes this long."""

# Clients are forked from a process that has imported everything, so that they spend their lives talking.
_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.preload"])


def _run_client(output: str, arguments: list[str]) -> None:
    _print_to(output)
    raise SystemExit(client.main(arguments))


def _run_command(output: str, arguments: list[str]) -> None:
    _print_to(output)
    raise SystemExit(main.run(arguments))


def _print_to(output: str) -> None:
    for name, descriptor in ((output, 1), (f"{output}.err", 2)):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)


@dataclass(slots=True)
class Client:
    """A running client and what it has printed."""

    process: BaseProcess
    output: Path

    @property
    def lines(self) -> list[str]:
        return self.output.read_text().splitlines() if self.output.exists() else []

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    @property
    def complaint(self) -> str:
        """What it printed to standard error."""
        return Path(f"{self.output}.err").read_text() if Path(f"{self.output}.err").exists() else ""

    async def wait(self) -> int:
        """Its exit code, negative for the signal that killed it."""
        with anyio.fail_after(GIVE_UP_SECONDS):
            while self.process.exitcode is None:
                await anyio.sleep(POLL_SECONDS)
        return self.process.exitcode or 0

    async def wait_for(self, word: str, times: int = 1) -> None:
        """Wait until it printed that many lines that begin with a word, or ended."""
        with anyio.fail_after(GIVE_UP_SECONDS):
            while self.running and sum(line.startswith(word) for line in self.lines) < times:
                await anyio.sleep(POLL_SECONDS)

    async def kill(self) -> None:
        """End it as a power user or the kernel would."""
        self.process.kill()
        await self.wait()


def start_command(output: Path, *arguments: str) -> Client:
    """Run a command line of Retinue in a process of its own."""
    return _start(_run_command, output, list(arguments))


def _start(target: Callable[[str, list[str]], None], output: Path, arguments: list[str]) -> Client:
    process = _processes.Process(target=target, args=(str(output), arguments), daemon=True)
    process.start()
    return Client(process, output)


@dataclass
class Scene:
    """A home whose agent talks to a `RuleServer`."""

    path: Path
    server: RuleServer
    config: dict[str, Any] = field(default_factory=dict)
    window: int = 100_000
    clients: list[Client] = field(default_factory=list)
    beside: Path | None = None
    """Where the ledger and what clients print go, if not next to the home."""
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        model = {"id": "test-model", "contextWindow": self.window}
        provider = {
            "baseUrl": self.server.url,
            "api": "anthropic-messages",
            "apiKey": "secret-key-0123456789",
            "models": [model],
        }
        config = {
            "models": {"providers": {"test": provider}},
            "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
            "messages": {"queue": {"mode": "followup", "debounceMs": 0, "cap": 500}},
            **self.config,
        }
        self.home.path.mkdir(parents=True, exist_ok=True)
        self.home.config_file.write_text(json.dumps(config))

    @property
    def home(self) -> HomePaths:
        return HomePaths(self.path / "home")

    @property
    def ledger(self) -> Path:
        return (self.beside or self.path) / "ledger"

    def start(self, session: str, text: str, *options: str) -> Client:
        """Let a client say something."""
        arguments = [str(self.home.path), f"agent:main:{session}", text, str(self.ledger), *options]
        return self._start(_run_client, arguments)

    async def command(self, *arguments: str) -> Client:
        """Run a command line of Retinue on the home."""
        started = self._start(_run_command, [*arguments, "--home", str(self.home.path)])
        await started.wait()
        return started

    def _start(self, target: Callable[[str, list[str]], None], arguments: list[str]) -> Client:
        started = _start(target, (self.beside or self.path) / f"client-{next(self._numbers)}", arguments)
        self.clients.append(started)
        return started

    async def say(self, session: str, text: str, *options: str) -> Client:
        """Let a client say something and wait until it ended."""
        started = self.start(session, text, *options)
        await started.wait()
        return started

    async def sweep(self, *sessions: str) -> None:
        """Send one more message to each session, which sees through what was left there."""
        for session in sessions:
            swept = await self.say(session, f"{session}-sweep-{next(self._numbers)}")
            assert [line.split()[2] for line in swept.lines[-1:]] == ["ok"], (swept.lines, swept.complaint)

    def evidence(self) -> Evidence:
        """What the clients left behind, once none of them runs."""
        outputs = [started.output for started in self.clients if started.output.exists()]
        return gather(self.home, outputs, self.ledger)

    @contextmanager
    def ending_clients(self) -> Iterator[None]:
        """Leave no client behind, whatever a test finds."""
        try:
            yield
        finally:
            for started in self.clients:
                started.process.kill()
                started.process.join()
                started.process.close()
