"""Sign-in at a registry by a code that is confirmed in a browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run
from retinue.core.errors import SkillError
from retinue.skills.registry.address import read_token
from retinue.skills.registry.client import connect
from retinue.skills.registry.sign_in import RegistryDeviceCode
from tests.workspaces import begin_workspace

pytestmark = pytest.mark.anyio

CODE = {
    "device_code": "device-1",
    "user_code": "ABCD-EFGH",
    "verification_uri": "https://registry.example/device",
    "expires_in": 60,
    "interval": 1,
}


@dataclass
class SignIn:
    """A registry with accounts; `answers` are those to the question whether the code was confirmed."""

    address: str = ""
    code: dict[str, Any] | None = field(default_factory=lambda: dict(CODE))
    answers: list[str] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def answer(self, path: str, token: str) -> tuple[int, Any]:
        match path:
            case "/api/cli/device/code" if self.code is not None:
                return 200, self.code
            case "/api/cli/device/token":
                refusal = self.answers.pop(0) if self.answers else ""
                return (400, {"error": refusal}) if refusal else (200, {"access_token": "clh_token_1", "scope": "x"})
            case "/api/v1/whoami" if token == "Bearer clh_token_1":
                return 200, {"user": {"handle": "ada"}}
        return 404, "not found"


@pytest.fixture
def registry() -> Iterator[SignIn]:
    state = SignIn()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply()

        def do_POST(self) -> None:
            state.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.reply()

        def reply(self) -> None:
            status, body = state.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
        thread.join()


async def sign_in(registry: SignIn) -> tuple[str, list[float], list[RegistryDeviceCode]]:
    waited: list[float] = []
    shown: list[RegistryDeviceCode] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async with connect(registry.address, wait=wait) as client:
        return await client.sign_in(registry.address, shown.append, "laptop"), waited, shown


async def test_the_code_is_shown_and_the_token_comes_when_it_is_confirmed(registry: SignIn) -> None:
    registry.answers = ["authorization_pending", "slow_down", "authorization_pending"]
    token, waited, shown = await sign_in(registry)
    assert token == "clh_token_1"
    assert waited == [1, 1, 6, 6]
    assert [code.user_code for code in shown] == ["ABCD-EFGH"]
    assert registry.asked[0] == {"scope": "read write", "site_url": registry.address, "label": "laptop"}
    assert registry.asked[1]["device_code"] == "device-1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["access_denied"], "was denied in the browser"),
        (["expired_token"], "was not confirmed in time"),
        (["authorization_pending"] * 100, "was not confirmed in time"),
        (["invalid_client"], "HTTP 400"),
    ],
)
async def test_a_code_that_is_not_confirmed_gives_no_token(registry: SignIn, answers: list[str], message: str) -> None:
    registry.answers = answers
    with pytest.raises(SkillError, match=message):
        await sign_in(registry)


async def test_a_page_that_is_no_web_page_is_not_shown(registry: SignIn) -> None:
    registry.code = {**CODE, "verification_uri": "javascript:alert(1)"}
    with pytest.raises(SkillError, match="no valid page"):
        await sign_in(registry)


async def test_a_registry_without_accounts_says_so(registry: SignIn) -> None:
    registry.code = None
    with pytest.raises(SkillError, match="does not offer sign-in by code"):
        await sign_in(registry)


@pytest.mark.slow
def test_the_command_stores_the_token_and_prints_only_the_code(
    registry: SignIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / "home"
    monkeypatch.setenv("RETINUE_HOME", str(home))
    begin_workspace(home / "workspace")
    (home / "retinue.json").write_text(json.dumps({"skills": {"registry": registry.address}}))
    assert run(["skills", "login", "--device", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"registry": registry.address, "handle": "ada"}
    assert "Open https://registry.example/device and enter the code ABCD-EFGH." in shown.err
    assert "clh_token_1" not in shown.out + shown.err
    assert read_token(home / "credentials", registry.address, {"HOME": str(tmp_path)}) == "clh_token_1"
    assert run(["skills", "login", "--device", "--token", "x"]) != 0
    assert "Give one of" in capsys.readouterr().err
