"""The gateway: how soon it is ready, what it holds in memory, what it adds to a turn, and many sessions at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import anyio
import httpx2

from bench.measure import PYTHON, Sheet, yardstick
from retinue.client import Client, open_local_client
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import RunId, SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import find_instance, read_local_token
from retinue.wire import messages, sessions
from retinue.workspace.seeding import seed_workspace
from retinue.workspace.settings import WorkspaceSettings

STARTS = 5
IDLE_SECONDS, LONG_IDLE_SECONDS = 5, 60
WARM_SESSIONS, COLD_TURNS, WARM_TURNS = 8, 5, 25
SESSIONS, AT_ONCE = 1_000, 100
CLIENTS, MESSAGES, ROOMS = 64, 50, 20
NOTES = 200


def run(*, full: bool) -> None:
    sheet = Sheet("gateway")
    replies = {"replies": [], "then": "Hello."}
    with tempfile.TemporaryDirectory() as place, serve_model(Path(place), replies) as port:
        home, plain = _make_home(Path(place) / "home", port), _make_home(Path(place) / "plain", port, notes=0)
        _measure_start(home, sheet)
        with _gateway(home) as process:
            time.sleep(LONG_IDLE_SECONDS if full else IDLE_SECONDS)
            sheet.row("idle memory, a home with 200 notes", memory_of(process.pid), "MB")
        with _gateway(plain) as process:
            anyio.run(_measure_overhead, plain, port, process.pid, sheet, "a warm turn")
        with _gateway(home) as process:
            anyio.run(_measure_overhead, home, port, process.pid, sheet, f"a turn that recalls from {NOTES} notes")
            anyio.run(_measure_sessions, home, process.pid, sheet)
        with _gateway(home):
            anyio.run(_measure_crowd, home, sheet)
    sheet.save()


@contextmanager
def serve_model(place: Path, script: object) -> Iterator[int]:
    file = place / "gateway-script.json"
    file.write_text(json.dumps(script))
    argv = [sys.executable, "-m", "retinue.testing.modelserver", "--port", "0", "--script", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


@contextmanager
def _gateway(home: HomePaths) -> Iterator[subprocess.Popen[bytes]]:
    argv = [PYTHON, "-m", "retinue", "gateway", "run", "--port", "0", "--home", str(home.path)]
    process = subprocess.Popen(argv, env={**os.environ, "HOME": str(home.path.parent)})
    try:
        while (found := find_instance(home)) is None or not found.url:
            if process.poll() is not None:
                raise RuntimeError("the gateway ended at its start")
            time.sleep(0.002)
        yield process
    finally:
        process.terminate()
        process.wait()


def _measure_start(home: HomePaths, sheet: Sheet) -> None:
    walls, cpus = [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        with _gateway(home) as process:
            walls.append(time.perf_counter() - began)
            cpus.append(_cpu_seconds(process.pid))
    sheet.row("from start to ready", min(walls), "s", f"{min(cpus):.2f} s of CPU; best of {STARTS}")


async def _unseen(event: TurnEvent) -> None:
    """Nobody looks."""


@asynccontextmanager
async def _connected(home: HomePaths) -> AsyncIterator[Client]:
    async with open_local_client(home, name="bench") as client:
        assert client is not None
        yield client


async def _measure_overhead(home: HomePaths, port: int, pid: int, sheet: Sheet, what: str) -> None:
    """Turns through the gateway in sessions of an ordinary length, less what the model takes when asked directly."""
    sheet.row("yardstick: the machine compiles a module", yardstick(), "ms", "so fast was it during the next rows")
    model = await _time_model(port)
    async with _connected(home) as client:

        async def say(session: str, text: str) -> None:
            await client.say(Inbound(text, _key(session)), _unseen)

        async with AsyncExitStack() as stack:
            for session in range(WARM_SESSIONS):  # as a chat does that stays open
                await stack.enter_async_context(client.following(_key(f"socket-{session}")))
            times, cpu = await _time_turns(say, "socket", pid)
    sheet.row(f"CPU of the gateway for {what}", cpu * 1000, "ms")
    _rows(sheet, f"added to {what}, WebSocket", times, model)
    found = find_instance(home)
    assert found is not None
    headers = {"Authorization": f"Bearer {read_local_token(home)}"}
    async with httpx2.AsyncClient(base_url=found.url, headers=headers, timeout=60) as http:

        async def post(session: str, text: str) -> None:
            body = {"message": text, "sessionKey": session, "idempotencyKey": random_uuid()}
            accepted = (await http.post("/rpc/agent", json=body)).json()
            await http.post("/rpc/agent.wait", json={"runId": accepted["runId"]})

        times, _ = await _time_turns(post, "http", pid)
    _rows(sheet, f"added to {what}, HTTP (two requests)", times, model)


def _key(session: str) -> SessionKey:
    return SessionKey.parse(f"agent:main:{session}")


async def _time_turns(say: Callable[[str, str], Awaitable[None]], name: str, pid: int) -> tuple[list[float], float]:
    """How long each turn took, and what it cost the gateway; the first ones of a session are not counted."""
    times = []
    cpu = 0.0
    for session in range(WARM_SESSIONS):
        for number in range(COLD_TURNS):
            await say(f"{name}-{session}", f"cold {number}")
        before = _cpu_seconds(pid)
        for number in range(WARM_TURNS):
            began = time.perf_counter()
            await say(f"{name}-{session}", f"turn {number}")
            times.append(time.perf_counter() - began)
        cpu += _cpu_seconds(pid) - before
    return times, cpu / len(times)


async def _time_model(port: int) -> float:
    times = []
    body = {"model": "test-model", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with httpx2.AsyncClient(timeout=60) as http:
        for _ in range(50):
            began = time.perf_counter()
            await http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
            times.append(time.perf_counter() - began)
    return median(times)


def _rows(sheet: Sheet, what: str, times: Sequence[float], model: float) -> None:
    ordered = sorted(times)
    note = f"{median(times) * 1000:.1f} ms whole turn, {model * 1000:.1f} ms of it the model's"
    sheet.row(f"{what}, p50", (median(times) - model) * 1000, "ms", note)
    calm = min(median(times[at : at + WARM_TURNS]) for at in range(0, len(times), WARM_TURNS))
    sheet.row(f"{what}, p50 of the calmest session", (calm - model) * 1000, "ms", "on a machine that others use too")
    sheet.row(f"{what}, p99", (ordered[int(len(ordered) * 0.99)] - model) * 1000, "ms")


async def _measure_sessions(home: HomePaths, pid: int, sheet: Sheet) -> None:
    """A thousand sessions with a turn each, a hundred of them at a time, all followed by one client."""
    before = memory_of(pid)
    times: list[float] = []
    numbers = iter(range(SESSIONS))

    async def talk(client: Client) -> None:
        for number in numbers:
            began = time.perf_counter()
            say = messages.Say(message="hi", session_key=f"many-{number}", idempotency_key=random_uuid())
            accepted = await client.call(messages.AGENT, say)
            outbound = await client.wait(RunId(accepted.run_id))
            if outbound.text != "Hello.":
                raise AssertionError(f"session {number} answered {outbound}")
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_connected(home)) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for at in range(AT_ONCE):
                tasks.start_soon(talk, clients[at % len(clients)])
        took = time.perf_counter() - began
    note = f"p99 {sorted(times)[int(SESSIONS * 0.99)] * 1000:.0f} ms, {AT_ONCE} at once"
    sheet.row(f"{SESSIONS:,} sessions, a turn each", SESSIONS / took, "turn/s", note)
    sheet.row(
        f"memory that {SESSIONS:,} sessions add", memory_of(pid) - before, "MB", f"{memory_of(pid):.0f} MB in all"
    )


async def _measure_crowd(home: HomePaths, sheet: Sheet) -> None:
    """Many clients on few sessions: every message is answered, and each client's stand in the order it sent them."""
    sent: dict[str, list[str]] = {f"crowd-{room}": [] for room in range(ROOMS)}

    async def talk(number: int) -> None:
        async with _connected(home) as client:
            for turn in range(MESSAGES):
                room, text = f"crowd-{(number + turn) % ROOMS}", f"{number:02}-{turn:02}"
                accepted = await client.call(
                    messages.AGENT, messages.Say(message=text, session_key=room, idempotency_key=text)
                )
                sent[room].append(text)
                await client.wait(RunId(accepted.run_id))

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(CLIENTS):
            tasks.start_soon(talk, number)
    took = time.perf_counter() - began
    async with _connected(home) as client:
        for room, texts in sent.items():
            history = await client.call(sessions.HISTORY, sessions.ReadHistory(session_key=room, limit=2_000))
            users = [entry["message"] for entry in history.entries if entry["message"]["role"] == "user"]
            said = [part["text"] for message in users for part in message["content"]]
            in_order = all(
                own == sorted(own) for own in ([t for t in said if t[:2] == f"{n:02}"] for n in range(CLIENTS))
            )
            if sorted(said) != sorted(texts) or not in_order:
                raise AssertionError(f"messages of {room} were lost, said twice or out of order")
    note = f"{CLIENTS} clients × {MESSAGES} messages × {ROOMS} sessions, strictly in order, none lost"
    sheet.row("a crowd", CLIENTS * MESSAGES / took, "turn/s", note)


def memory_of(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _make_home(path: Path, port: int, notes: int = NOTES) -> HomePaths:
    # Made by Retinue, and lived in since: no first conversation is pending.
    seed_workspace(path / "workspace", WorkspaceSettings(skip_bootstrap=True), datetime.now(UTC))
    folder = path / "workspace" / "memory"
    folder.mkdir()
    for number in range(notes):
        (folder / f"note-{number}.md").write_text(
            f"# Note {number}\n\nThe answer to question {number} is {number * 7}.\n"
        )
    model = {"id": "test-model", "contextWindow": 200_000}
    url = f"http://127.0.0.1:{port}/v1"
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "x" * 20, "models": [model]}
    config = {
        "models": {"providers": {"test": provider}},
        "agents": {"defaults": {"model": "test/test-model", "maxConcurrent": AT_ONCE}},
        "messages": {"queue": {"mode": "followup", "debounceMs": 0, "cap": 500}},
    }
    (path / "retinue.json").write_text(json.dumps(config))
    index = [PYTHON, "-m", "retinue", "memory", "index", "--quiet", "--home", str(path)]
    subprocess.run(index, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HOME": str(path.parent)})
    return HomePaths(path)


if __name__ == "__main__":
    run(full="--full" in sys.argv)
