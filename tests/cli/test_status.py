"""`retinue status`: a home at a glance."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from retinue.cli.status import ask_gateway
from retinue.core.clock import SystemClock
from retinue.core.keys import SessionKey
from retinue.core.messages import said
from retinue.sessions.entries import MessageAdded
from retinue.sessions.store import SessionStore
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import InstanceFacts, InstanceLock
from tests.cli.conftest import RunCommand


def test_without_a_home_it_makes_none(home: Path, retinue: RunCommand) -> None:
    ran = retinue("status")
    assert ran.code == 0
    assert "not created yet" in ran.out
    assert "retinue gateway start" in ran.out
    assert not home.exists()


def test_it_counts_what_is_there(home: Path, retinue: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key-0123456789")
    retinue("init")
    store = SessionStore(home / "agents" / "main" / "sessions", SystemClock())
    store.open(SessionKey.parse("agent:main:main")).append(MessageAdded(said("Hello")))
    store.settle_all()
    (home / "workspace" / "memory").mkdir(exist_ok=True)
    (home / "workspace" / "memory" / "2026-01-01.md").write_text("The roof was mended.")
    retinue("memory", "index")
    retinue("cron", "add", "--name", "news", "--cron", "0 8 * * *", "-m", "What is new?")
    found = retinue("status", "--json").data
    (agent,) = found["agents"]
    assert agent["model"].startswith("anthropic/")
    assert agent["sessions"] == 1
    assert agent["memory"]["files"] == 1
    assert agent["memory"]["syncedAt"]
    assert [job["name"] for job in found["nextJobs"]] == ["news"]
    assert found["gateway"] == {"running": False}
    assert found["pendingApprovals"] == 0


def test_errors_of_the_log_are_shown(home: Path, retinue: RunCommand) -> None:
    retinue("init")
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / "retinue.log").write_text(
        "2026-01-01 10:00:00,000 ERROR retinue.x it broke\nTraceback (most recent call last):\n"
        "2026-01-01 10:00:01,000 INFO retinue.x it goes on\n"
    )
    assert [each["message"] for each in retinue("status", "--json").data["lastErrors"]] == ["it broke"]


def test_a_gateway_that_hangs_is_told_within_a_moment(home: Path, retinue: RunCommand) -> None:
    lock = InstanceLock(HomePaths(home))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        lock.write(InstanceFacts(1, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        found = retinue("status", "--json").data["gateway"]
    lock.release()
    assert (found["running"], found["answers"]) == (True, False)


def test_a_gateway_is_asked_with_the_token_of_this_machine(home: Path) -> None:
    asked: list[tuple[str, str | None]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            body = json.dumps({"uptimeSeconds": 61, "sessionsActive": 2}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep quiet."""

    (home / "credentials").mkdir(parents=True)
    (home / "credentials" / "gateway.token").write_text("rtn_a_b")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        answer = ask_gateway(HomePaths(home), InstanceFacts(1, f"http://127.0.0.1:{server.server_port}"))
        thread.join()
    assert answer == {"uptimeSeconds": 61, "sessionsActive": 2}
    assert asked == [("/rpc/status", "Bearer rtn_a_b")]


@pytest.mark.slow
def test_it_imports_no_sdk_and_no_web_framework(home: Path) -> None:
    program = (
        "import sys; from retinue.cli.main import run; run(['status']); "
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'starlette', 'rich', 'numpy', 'opentelemetry', "
        "'websockets', 'prompt_toolkit') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_gateway_that_runs_tells_how_it_is_doing(home: Path, retinue: RunCommand) -> None:
    started = retinue("gateway", "start", "--port", "0", "--json")
    assert started.code == 0, started.err
    try:
        for _ in range(20):  # a machine under load may need more than the moment that the gateway is given
            found = retinue("status", "--json").data["gateway"]
            if found["answers"]:
                break
        checked = [each["what"] for each in retinue("doctor", "--json").data["findings"] if each["area"] == "gateway"]
    finally:
        retinue("gateway", "stop")
    assert (found["answers"], found["pid"], found["url"]) == (True, started.data["pid"], started.data["url"])
    assert found["sessionsActive"] == 0
    assert "No gateway runs." not in checked


def test_what_a_damaged_database_kept_and_lost_is_reported_until_the_file_is_deleted(
    home: Path, retinue: RunCommand
) -> None:
    retinue("init")
    retinue("cron", "add", "--name", "news", "--cron", "0 8 * * *", "-m", "What is new?")
    database = home / "state.sqlite"
    database.write_bytes(b"damaged" + database.read_bytes()[7:])
    assert [job["name"] for job in retinue("cron", "list", "--json").data] == ["news"]
    [report] = retinue("status", "--json").data["reports"]
    assert "jobs: 1 kept" in report
    findings = retinue("doctor", "--json").data["findings"]
    assert [finding["what"] for finding in findings if finding["area"] == "state"] == [report]
    (home / "state.sqlite.corrupt-1").unlink()
    assert retinue("status", "--json").data["reports"] == []
