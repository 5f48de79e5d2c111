"""How long other clients wait while one client floods the gateway: the median of their turns, as a multiple of idle.

The flood has a token of its own and uses many sessions; each of its messages is answered by a turn. It has another
model server, and both answer at once, so the clients compete for the gateway's own work only. On a machine that others
use too, the CPU time that the gateway uses during a turn is the better measure; it is in the note.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import httpx2
from websockets.asyncio.client import connect

from bench.measure import PYTHON, RETINUE, Sheet, cpu_seconds
from bench.startup import Bench, call_method, make_home, open_socket, serve_gateway
from retinue.testing.modelserver import running_server

MESSAGES, SHORT_MESSAGES = 5_000, 1_500
SESSIONS, IN_FLIGHT = 50, 48
TURNS, COLD_TURNS = 40, 5
GOAL = 3.0
SCRIPTED_ANSWERS = 100_000


def run_flood(sheet: Sheet, messages: int) -> None:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = []
        for name in ("own", "flood"):
            (place / name).mkdir()
            ports.append(stack.enter_context(running_server(place / name, ["Hello."] * SCRIPTED_ANSWERS)))
        bench = Bench(RETINUE, "", make_home(place / "home", ports[0]))
        _add_flooded_agent(bench.home / "retinue.json", ports[1])
        tokens = [_make_token(bench, name) for name in ("victim", "flood")]
        with serve_gateway(bench) as (process, address):
            _measure(sheet, address, tokens, messages, process.pid)


def _add_flooded_agent(file: Path, port: int) -> None:
    config = json.loads(file.read_text())
    providers = config["models"]["providers"]
    providers["flooded"] = providers["test"] | {"baseUrl": f"http://127.0.0.1:{port}/v1"}
    flooded = {"id": "flooded", "model": "flooded/test-model"}
    config["agents"]["list"] = [{"id": "main", "default": True}, flooded]
    file.write_text(json.dumps(config))


def _make_token(bench: Bench, name: str) -> str:
    argv = [bench.program, "gateway", "token", "create", "--name", name, "--scope", "admin", "--json"]
    made = subprocess.run(argv, env={**os.environ, **bench.environment}, capture_output=True, text=True, check=True)
    token: str = json.loads(made.stdout)["token"]
    return token


def _measure(sheet: Sheet, address: str, tokens: list[str], messages: int, gateway: int) -> None:
    own, flooding = tokens
    with open_socket(address, own) as link, httpx2.Client(base_url=f"http://{address}", timeout=600) as http:
        http.headers["authorization"] = f"Bearer {own}"

        def over_socket(key: str) -> None:
            accepted = call_method(link, "agent", message=key, sessionKey="own-ws", idempotencyKey=key)
            call_method(link, "agent.wait", runId=accepted["runId"])

        def over_http(key: str) -> None:
            sent = {"message": key, "sessionKey": "own-http", "idempotencyKey": key}
            accepted = http.post("/rpc/agent", json=sent).raise_for_status().json()
            http.post("/rpc/agent.wait", json={"runId": accepted["runId"]}).raise_for_status()

        turns = {"WebSocket": over_socket, "HTTP": over_http}
        idle = {name: _time_turns(turn, f"idle-{name}", gateway) for name, turn in turns.items()}
        for kind in ("ws", "http"):
            for name, turn in turns.items():
                with _flooding(kind, address, flooding, messages, f"{kind}-{name}") as flood:
                    found = _time_turns(turn, f"{kind}-{name}", gateway)
                    is_over = flood.poll() is not None
                note = f"{found.wall:.1f} ms, idle {idle[name].wall:.1f} ms; {found.cpu / idle[name].cpu:.1f} × CPU"
                what = f"a turn over {name} during a flood over {'WebSocket' if kind == 'ws' else 'HTTP'}, p50"
                note += ", the flood ended early" if is_over else ""
                sheet.row(what, found.wall / idle[name].wall, "×", note, goal=GOAL)


@dataclass(frozen=True)
class Times:
    """Medians of a turn in milliseconds: the time that passed, and the CPU time that the gateway used meanwhile."""

    wall: float
    cpu: float


def _time_turns(turn: Callable[[str], None], name: str, gateway: int) -> Times:
    walls, cpus = [], []
    for number in range(COLD_TURNS + TURNS):
        began, used = time.perf_counter(), cpu_seconds(gateway)
        turn(f"{name}-{number}")
        walls.append(time.perf_counter() - began)
        cpus.append(cpu_seconds(gateway) - used)
    return Times(median(walls[COLD_TURNS:]) * 1000, median(cpus[COLD_TURNS:]) * 1000)


@contextmanager
def _flooding(kind: str, address: str, token: str, messages: int, name: str) -> Iterator[subprocess.Popen[str]]:
    argv = [PYTHON, "-m", "bench.faults_flood", kind, address, str(messages), name]
    environment = {**os.environ, "FLOOD_TOKEN": token}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first answers have arrived
        try:
            yield process
        finally:
            process.kill()


async def _flood_socket(address: str, token: str, messages: int, name: str) -> None:
    async with connect(f"ws://{address}/ws", proxy=None, compression=None) as link:
        hello = {"client": {"name": "flood"}, "auth": {"token": token}}
        await link.send(json.dumps({"type": "req", "id": "connect", "method": "connect", "params": hello}))
        sent = answered = 0
        while answered < messages:
            while sent < messages and sent - answered < IN_FLIGHT:
                method, params = "agent", _message(name, sent)
                await link.send(json.dumps({"type": "req", "id": f"{sent}", "method": method, "params": params}))
                sent += 1
            frame = json.loads(await link.recv())
            if frame["type"] != "res" or frame["id"] == "connect":
                continue
            if frame["ok"] and "runId" in frame["payload"] and not frame["id"].startswith("wait-"):
                wait = {"runId": frame["payload"]["runId"]}
                identity = f"wait-{frame['id']}"
                await link.send(json.dumps({"type": "req", "id": identity, "method": "agent.wait", "params": wait}))
                continue
            answered += 1
            _announce(answered)


async def _flood_http(address: str, token: str, messages: int, name: str) -> None:
    numbers = iter(range(messages))
    limits = httpx2.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    headers = {"Authorization": f"Bearer {token}"}
    answered = 0
    async with httpx2.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=600, limits=limits) as http:

        async def send() -> None:
            nonlocal answered
            for number in numbers:
                accepted = (await http.post("/rpc/agent", json=_message(name, number))).json()
                await http.post("/rpc/agent.wait", json={"runId": accepted["runId"]})
                answered += 1
                _announce(answered)

        async with anyio.create_task_group() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.start_soon(send)


def _message(name: str, number: int) -> dict[str, Any]:
    key = f"{name}-{number}"
    return {"message": key, "sessionKey": f"agent:flooded:{number % SESSIONS}", "idempotencyKey": f"flood-{key}"}


def _announce(answered: int) -> None:
    if answered == SESSIONS:
        print("flooding", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        flood = {"ws": _flood_socket, "http": _flood_http}[sys.argv[1]]
        anyio.run(flood, sys.argv[2], os.environ["FLOOD_TOKEN"], int(sys.argv[3]), sys.argv[4])
    else:
        run_flood(Sheet("flood"), MESSAGES if "--full" in sys.argv else SHORT_MESSAGES)
