"""Gateways at the limits of the system: no more descriptors, no more memory, and then a signal to stop."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from retinue.gateway.shutdown import MAX_SHUTDOWN_SECONDS, UNFINISHED
from tests.gateway.conftest import WITHOUT_UVLOOP, GatewayProcess, Hall, gateway_process, raw_socket, wait_until

CONNECTIONS = 200
MEGABYTE = 1_000_000
PROGRAMS = {"uvloop": ("-m", "retinue"), "asyncio": WITHOUT_UVLOOP}


@dataclass(frozen=True)
class Usage:
    """The CPU seconds of a process and the size of its log."""

    cpu: float
    log_bytes: int


def usage_of(process: GatewayProcess) -> Usage:
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    logs = [*process.hall.home.log_file.parent.glob("retinue.log*"), process.hall.home.path.parent / "gateway.out"]
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return Usage(cpu, sum(path.stat().st_size for path in logs))


def limit_descriptors(process: GatewayProcess, more: int) -> None:
    """Allow a process only this many descriptors more than it has open."""
    pid = process.process.pid
    limit = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()) + 1 + more
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))


def limit_memory(process: GatewayProcess, more: int) -> None:
    """Allow a process only this many bytes of address space more than it uses."""
    pid = process.process.pid
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + more, used + more))


def open_connections(hall: Hall, count: int = CONNECTIONS) -> list[socket.socket]:
    """Connect to a gateway many times and send nothing."""
    host, port = hall.host.rsplit(":", 1)
    opened = [socket.socket() for _ in range(count)]
    for connection in opened:
        connection.setblocking(False)
        connection.connect_ex((host, int(port)))
    return opened


async def is_waiting(hall: Hall) -> None:
    """Wait until the gateway has logged that new connections must wait."""
    await wait_until(lambda: "new connections must wait" in hall.home.log_file.read_text())


@dataclass
class Ends:
    """How gateways ended that had no memory or descriptors left."""

    codes: list[int] = field(default_factory=list)
    longest: float = 0.0
    hung: int = 0
    """Gateways that did not end, or only because the guard ended them."""
    lost: list[str] = field(default_factory=list)
    """Accepted messages that the next gateway did not know."""


async def end_without_resources(hall: Hall, cases: int, seed: int) -> Ends:
    """Take memory or descriptors from gateways under load, stop them, and count those that do not end."""
    chance, ends = random.Random(seed), Ends()
    accepted: dict[str, str] = {}
    for number in range(cases):
        loop = chance.choice(sorted(PROGRAMS))
        async with gateway_process(hall, program=PROGRAMS[loop]) as process:
            opened: Sequence[socket.socket] = ()
            if number % 2:
                limit_memory(process, round(chance.uniform(0.2, 12) * MEGABYTE))
            else:
                limit_descriptors(process, chance.randrange(60))
                opened = open_connections(hall)
            with anyio.move_on_after(chance.uniform(0.1, 0.6)):
                await _send_messages(hall, f"{number}-", accepted)
            began = time.monotonic()
            process.process.send_signal(signal.SIGTERM)
            with anyio.move_on_after(MAX_SHUTDOWN_SECONDS + 10):
                await process.ended()
            code = process.process.poll()
            for connection in opened:
                connection.close()
        ends.longest = max(ends.longest, time.monotonic() - began)
        ends.hung += code in (None, UNFINISHED)
        ends.codes.append(-signal.SIGKILL if code is None else code)
    await _find_lost(hall, accepted, ends)
    return ends


async def _send_messages(hall: Hall, prefix: str, accepted: dict[str, str]) -> None:
    with suppress(ConnectionClosed, InvalidHandshake, OSError, EOFError):
        async with raw_socket(hall) as raw:
            for number in range(1_000):
                text = f"{prefix}{number}"
                said = await raw.call("agent", message=text + "x" * 100_000, sessionKey=text, idempotencyKey=text)
                if said["ok"]:
                    accepted[text] = said["payload"]["runId"]


async def _find_lost(hall: Hall, accepted: dict[str, str], ends: Ends) -> None:
    async with gateway_process(hall), raw_socket(hall) as raw:
        for text in accepted:
            again = await raw.result("agent", message=text + "x" * 100_000, sessionKey=text, idempotencyKey=text)
            if not again["duplicate"]:
                ends.lost.append(text)
