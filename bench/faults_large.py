"""Large data: the first request in a session of 50,000 messages, and commands in a home with 20,000 sessions."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import anyio

from bench.measure import RETINUE, Sheet
from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.messages import AssistantMessage, Text, said
from retinue.sessions.entries import MessageAdded
from retinue.sessions.store import SessionStore
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says

MESSAGES, SESSIONS = 50_000, 20_000
WINDOW_TOKENS = 200_000
MAX_CALLS = 40
"""Answers that the model has ready; far more than should be asked for."""
BYTES_PER_TOKEN = 6
"""No request may be larger than the window; text as in these messages has at most so many bytes in a token."""
MAX_TURN_SECONDS, MAX_COMMAND_SECONDS = 10.0, 2.0
MODEL = "test/test-model"


def run_large(sheet: Sheet, messages: int = MESSAGES, sessions: int = SESSIONS) -> None:
    with tempfile.TemporaryDirectory() as place:
        anyio.run(_measure_long_session, sheet, Path(place) / "long", messages)
        _measure_many_sessions(sheet, Path(place) / "many", sessions)


async def _measure_long_session(sheet: Sheet, place: Path, messages: int) -> None:
    async with ModelServer() as model:
        model.push(*[says("Many things were said.")] * MAX_CALLS)
        home = _make_home(place, model.url)
        fill_session(home, messages)
        began = time.perf_counter()
        argv = [RETINUE, "agent", "-m", "And now?", "--session", "main", "--json"]
        await anyio.run_process(argv, env=_environment(home))
        took = time.perf_counter() - began
        sizes = [len(json.dumps(request.json)) for request in model.requests]
    note = f"{len(sizes)} model calls, the largest has {max(sizes):,} bytes"
    sheet.row(f"first request in a session of {messages:,} messages", took, "s", note, goal=MAX_TURN_SECONDS)
    if max(sizes) > WINDOW_TOKENS * BYTES_PER_TOKEN:
        raise AssertionError(f"a request of {max(sizes):,} bytes was sent to a model with {WINDOW_TOKENS:,} tokens")


def _measure_many_sessions(sheet: Sheet, place: Path, sessions: int) -> None:
    home = _make_home(place, "http://127.0.0.1:9/v1")
    fill_sessions(home, sessions)
    for command in (("sessions", "list", "--json"), ("doctor", "--json"), ("status", "--json")):
        began = time.perf_counter()
        done = subprocess.run([RETINUE, *command], env=_environment(home), capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        json.loads(done.stdout)  # doctor fails without a model, and still reports
        what = f"retinue {' '.join(command[:-1])} with {sessions:,} sessions"
        sheet.row(what, took, "s", f"{len(done.stdout):,} bytes", goal=MAX_COMMAND_SECONDS)


def fill_session(home: HomePaths, messages: int) -> None:
    """Write a session of that many short messages."""
    store = SessionStore(home.sessions(DEFAULT_AGENT), SystemClock())
    words = "This is one of many short messages that were written over the years, about work and the garden. " * 2
    pairs = (
        MessageAdded(
            AssistantMessage((Text(f"{number}. {words}"),), MODEL) if number % 2 else said(f"{number}. {words}")
        )
        for number in range(messages)
    )
    store.begin(SessionKey.main(DEFAULT_AGENT), pairs)
    store.settle_all()


def fill_sessions(home: HomePaths, sessions: int) -> None:
    """Write that many sessions of two messages."""
    store = SessionStore(home.sessions(DEFAULT_AGENT), SystemClock())
    for number in range(sessions):
        answer = AssistantMessage((Text("Hello."),), MODEL)
        bodies = (MessageAdded(said(f"Hello from {number}")), MessageAdded(answer))
        store.begin(SessionKey.parse(f"agent:{DEFAULT_AGENT}:session-{number}"), bodies)
    store.settle_all()


def _make_home(place: Path, url: str) -> HomePaths:
    home = HomePaths(place / "home")
    home.path.mkdir(parents=True)
    model = {"id": "test-model", "contextWindow": WINDOW_TOKENS}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "x" * 20, "models": [model]}
    config = {"models": {"providers": {"test": provider}}, "agents": {"defaults": {"model": MODEL}}}
    (home.path / "retinue.json").write_text(json.dumps(config))
    return home


def _environment(home: HomePaths) -> dict[str, str]:
    return {**os.environ, "HOME": str(home.path.parent), "RETINUE_HOME": str(home.path)}


if __name__ == "__main__":
    run_large(Sheet("faults_large"))
