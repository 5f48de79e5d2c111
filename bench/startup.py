"""What it costs to start: one answer on the command line, a ready gateway, its memory, and its first warm turns.

Only commands and the protocol are used, so the same measurements run against any version. `RETINUE` names the program;
several, separated by ':', are measured side by side. `LLM` names the program `llm` if it is not on the path; without
it, its rows are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from websockets.sync.client import ClientConnection, connect

from bench.measure import PYTHON, Sheet, process_cost, programs
from retinue.testing.modelserver import running_server

LIBRARIES = "import httpx2, click, anyio, sqlite3, yaml"
STARTS, IDLE_SECONDS = 5, 3.0
COLD_TURNS, WARM_TURNS = 5, 50
READY_SECONDS = 60.0
TOKEN_LENGTH = 20


def run(*, full: bool) -> None:
    sheet = Sheet("startup")
    runs = 30 if full else 10
    sheet.cost(f'python -c "{LIBRARIES}"', process_cost([PYTHON, "-c", LIBRARIES], runs=runs))
    with tempfile.TemporaryDirectory() as place, running_server(Path(place), ["Hello."] * 2_000) as port:
        measure_peer(sheet, Path(place), port, runs)
        for label, program in programs().items():
            folder = Path(place) / f"home{label.replace('/', '-')}"
            measure_program(sheet, Bench(program, label, make_home(folder, port)), port, runs)
    sheet.save()


@dataclass(frozen=True)
class Bench:
    """A program to measure, and a home for it."""

    program: str
    label: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home.parent), "RETINUE_HOME": str(self.home)}

    def named(self, what: str) -> str:
        return f"{what} ({self.label})" if self.label else what


def make_home(path: Path, port: int) -> Path:
    path.mkdir(parents=True)
    url = f"http://127.0.0.1:{port}/v1"
    model = {"id": "test-model", "contextWindow": 100_000}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "x" * TOKEN_LENGTH, "models": [model]}
    config = {
        "models": {"providers": {"test": provider}},
        "agents": {"defaults": {"model": "test/test-model"}},
        "messages": {"queue": {"mode": "followup", "debounceMs": 0}},
    }
    (path / "retinue.json").write_text(json.dumps(config))
    return path


def measure_peer(sheet: Sheet, place: Path, port: int, runs: int) -> None:
    """A comparable program on the same model, if it is installed."""
    program = os.environ.get("LLM") or shutil.which("llm")
    if program is None:
        return
    user = place / "llm"
    user.mkdir()
    model = {"model_id": "scripted", "model_name": "test-model", "api_base": f"http://127.0.0.1:{port}/v1"}
    (user / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
    environment = {"LLM_USER_PATH": str(user), "OPENAI_API_KEY": "x" * TOKEN_LENGTH}
    argv = [program, "-m", "scripted", "hello"]
    if subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, check=False).returncode:
        argv = [program, "--version"]
    sheet.cost(" ".join(["llm", *argv[1:]]), process_cost(argv, runs=runs, env=environment))


def measure_program(sheet: Sheet, bench: Bench, port: int, runs: int) -> None:
    commands = {
        "retinue agent -m hello": ((bench.program, "agent", "-m", "hello"), 0.45, 60.0),
        "retinue --help": ((bench.program, "--help"), 0.06, None),
        "retinue --version": ((bench.program, "--version"), None, None),
    }
    for what, (argv, cpu, memory) in commands.items():
        process_cost(argv, runs=1, env=bench.environment)  # compiles the modules
        cost = process_cost(argv, runs=runs, env=bench.environment)
        sheet.cost(bench.named(what), cost, cpu_goal=cpu, memory_goal=memory)
    create = [bench.program, "gateway", "token", "create", "--name", "bench", "--scope", "admin", "--json"]
    made = subprocess.run(create, env={**os.environ, **bench.environment}, capture_output=True, text=True, check=True)
    token: str = json.loads(made.stdout)["token"]
    ready = [_time_start(bench, token) for _ in range(STARTS)]
    sheet.row(bench.named("gateway ready"), min(ready), "s", f"best of {STARTS}", goal=0.5)
    with serve_gateway(bench) as (process, address):
        with open_socket(address, token):
            pass
        time.sleep(IDLE_SECONDS)
        sheet.row(bench.named("gateway idle memory"), _resident_mb(process.pid), "MB", goal=65.0)
        _measure_turns(sheet, bench, address, token, port)


@contextmanager
def serve_gateway(bench: Bench) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    argv = [bench.program, "gateway", "run", "--port", address.partition(":")[2]]
    process = subprocess.Popen(
        argv, env={**os.environ, **bench.environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process, address
    finally:
        process.terminate()
        process.wait()


def _time_start(bench: Bench, token: str) -> float:
    began = time.perf_counter()
    with serve_gateway(bench) as (_, address), open_socket(address, token):
        return time.perf_counter() - began


@contextmanager
def open_socket(address: str, token: str) -> Iterator[ClientConnection]:
    """A connection that was let in; a gateway that does not listen yet is waited for."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    with connect(f"ws://{address}/ws", proxy=None, compression=None) as link:
        call_method(link, "connect", client={"name": "bench"}, auth={"token": token})
        yield link


def call_method(link: ClientConnection, method: str, **params: Any) -> Any:
    """The result of a method; events that come before it are passed over."""
    link.send(json.dumps({"type": "req", "id": method, "method": method, "params": params}))
    while (frame := json.loads(link.recv()))["type"] != "res":
        pass
    if not frame["ok"]:
        raise RuntimeError(f"{method}: {frame}")
    return frame["payload"]


def _measure_turns(sheet: Sheet, bench: Bench, address: str, token: str, port: int) -> None:
    """Turns in one session, less what the model takes when it is asked directly."""
    body = {"model": "test-model", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx2.Client(timeout=60) as http:
        model = _median_ms(lambda number: http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body))

    def row(what: str, whole: float, goal: float) -> None:
        note = f"{whole:.1f} ms whole turn, {model:.1f} ms of it the model's"
        sheet.row(bench.named(what), whole - model, "ms", note, goal=goal)

    with open_socket(address, token) as link:

        def over_socket(number: int) -> None:
            sent = {"message": f"turn {number}", "sessionKey": "socket", "idempotencyKey": f"socket-{number}"}
            accepted = call_method(link, "agent", **sent)
            call_method(link, "agent.wait", runId=accepted["runId"])

        row("warm turn over WebSocket, p50", _median_ms(over_socket), 5.0)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=f"http://{address}", headers=headers, timeout=60) as http:

        def over_http(number: int) -> None:
            sent = {"message": f"turn {number}", "sessionKey": "http", "idempotencyKey": f"http-{number}"}
            accepted = http.post("/rpc/agent", json=sent).raise_for_status().json()
            http.post("/rpc/agent.wait", json={"runId": accepted["runId"]}).raise_for_status()

        row("warm turn over HTTP, p50", _median_ms(over_http), 7.0)


def _median_ms(work: Callable[[int], object]) -> float:
    times = []
    for number in range(COLD_TURNS + WARM_TURNS):
        began = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - began)
    return median(times[COLD_TURNS:]) * 1000


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
