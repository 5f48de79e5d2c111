"""What a turn costs besides the model: one process, and warm, as the history grows."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from bench.measure import PYTHON, RETINUE, Sheet, median_ms, process_cost
from retinue.core.clock import SystemClock, random_uuid
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import AssistantMessage, Text, said
from retinue.core.model import ModelEvent, ModelRef, ModelRequest
from retinue.dispatch.inbox import Inbox
from retinue.providers.failover import OnNotice
from retinue.runtime.home import load_home
from retinue.runtime.models import ModelAccess
from retinue.runtime.open import open_runtime
from retinue.sessions.entries import MessageAdded
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import SessionLease
from retinue.testing.modelserver import running_server

STREAM = ModelAccess.stream

APIS = {
    "openai-completions": ("/v1", "import httpx2"),
    "openai-responses": ("/v1", "import httpx2"),
    "anthropic-messages": ("", "import httpx2"),
}


def run(*, full: bool) -> None:
    sheet = Sheet("turn")
    with tempfile.TemporaryDirectory() as place, running_server(Path(place), ["Hello."] * 400) as port:
        for api, (path, statement) in APIS.items():
            home = _make_home(Path(place) / api, api, f"http://127.0.0.1:{port}{path}")
            base = process_cost([PYTHON, "-c", statement], runs=5)
            cost = process_cost([RETINUE, "agent", "-m", "hello", "--home", str(home.path)], runs=5)
            sheet.row(f'python -c "{statement}"', base.cpu, "s CPU", f"{base.peak_mb:.0f} MB")
            sheet.row(f"retinue agent -m hello, {api}", cost.cpu, "s CPU", f"{cost.peak_mb:.0f} MB")
        for messages in (10, 1_000, 10_000) if not full else (10, 1_000, 10_000, 100_000):
            home = _make_home(Path(place) / f"warm-{messages}", "openai-completions", f"http://127.0.0.1:{port}/v1")
            turn, model = anyio.run(_warm, home, messages)
            note = f"{turn:.1f} ms whole turn, {model:.1f} ms of it the model's"
            sheet.row(f"warm turn, {messages:,} messages of history", turn - model, "ms", note)
    for durable, name in ((False, "process"), (True, "power")):
        with tempfile.TemporaryDirectory() as place:
            added = _durability(HomePaths(Path(place) / "home"), durable=durable)
        sheet.row(f"what survival adds to a turn, durability: {name}", added, "ms", "inbox, lease, claim, result")
    sheet.save()


def _durability(home: HomePaths, *, durable: bool) -> float:
    """Everything that a turn does only so that its message survives: the transcript has it anyway."""
    clock = SystemClock()
    key = SessionKey.main(DEFAULT_AGENT)
    database = SqliteDatabase(home.path / "state.sqlite", durable=durable)
    inbox = Inbox(database, clock)

    def survive() -> None:
        run = RunId(random_uuid())
        inbox.accept(Inbound("hello", key), run)
        with SessionLease(home, key):
            inbox.waiting(key)
            inbox.claim(key, (run,), run)
            inbox.finish(run, Outbound(run, key, "s", TurnStatus.OK, "Hello."))
        inbox.outcome(run)
        inbox.delivered(run)

    cost = median_ms(survive, runs=200)
    database.close()
    return cost


async def _warm(paths: HomePaths, messages: int) -> tuple[float, float]:
    """The median turn in one process, and the part of it that was spent waiting for the model."""
    home = load_home(paths, environment={"HOME": str(paths.path), "PATH": "/usr/bin:/bin"})
    key = SessionKey.main(DEFAULT_AGENT)
    async with open_runtime(home) as runtime:
        parts = runtime.agent(DEFAULT_AGENT)
        transcript = parts.store.open(key)
        for number in range(messages // 2):
            transcript.append(MessageAdded(said(f"question {number}")))
            transcript.append(MessageAdded(AssistantMessage((Text(f"answer {number}"),), "test/test-model")))
        waited = 0.0
        stream = partial(STREAM, parts.access)

        async def timed(
            request: ModelRequest, chain: tuple[ModelRef, ...], on_notice: OnNotice
        ) -> AsyncGenerator[ModelEvent, None]:
            nonlocal waited
            events = stream(request, chain, on_notice)
            while True:
                began = time.perf_counter()
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                finally:
                    waited += time.perf_counter() - began
                yield event

        ModelAccess.stream = staticmethod(timed)  # type: ignore[method-assign,assignment]
        turns, models = [], []
        for number in range(25):
            waited = 0.0
            began = time.perf_counter()
            await runtime.say(Inbound(f"hello {number}", key))
            turns.append(time.perf_counter() - began)
            models.append(waited)
    return median(turns[5:]) * 1000, median(models[5:]) * 1000


def _make_home(path: Path, api: str, url: str) -> HomePaths:
    path.mkdir(parents=True)
    model = {"id": "test-model", "contextWindow": 1_000_000}
    provider = {"baseUrl": url, "api": api, "apiKey": "x" * 20, "models": [model]}
    config = {"models": {"providers": {"test": provider}}, "agents": {"defaults": {"model": "test/test-model"}}}
    (path / "retinue.json").write_text(json.dumps(config))
    return HomePaths(path)
