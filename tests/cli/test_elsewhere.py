"""Talking to a gateway elsewhere: by options, and as configured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.connect import check_url
from retinue.core.errors import UsageError
from retinue.testing.modelserver import running_server
from tests.cli.conftest import RunCommand
from tests.cli.test_chat import RETINUE, SECONDS, configure, environment


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("https://home.example:18790", "https://home.example:18790"),
        ("wss://home.example/assistant", "https://home.example/assistant"),
        ("ws://127.0.0.1:18790", "http://127.0.0.1:18790"),
        ("http://localhost:18790/", "http://localhost:18790/"),
        ("http://192.168.1.7:18790", "http://192.168.1.7:18790"),
    ],
)
def test_addresses_that_are_private_or_encrypted_are_used(given: str, used: str) -> None:
    assert check_url(given) == used


@pytest.mark.parametrize("given", ["http://home.example:18790", "ws://8.8.8.8", "ftp://home.example", "home.example"])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(UsageError):
        check_url(given)


def test_a_home_that_uses_a_gateway_elsewhere_says_so(home: Path, retinue: RunCommand) -> None:
    home.mkdir()
    config = {"gateway": {"mode": "remote", "remote": {"url": "https://home.example", "token": "t" * 20}}}
    (home / "retinue.json").write_text(json.dumps(config))
    assert "remote, at https://home.example" in retinue("status").out
    refused = retinue("gateway", "run")
    assert (refused.code, "gateway.mode is remote" in refused.err) == (2, True)
    assert not [each for each in retinue("doctor", "--json").data["findings"] if each["what"] == "No gateway runs."]
    (home / "retinue.json").write_text('{gateway: {mode: "remote"}}')
    assert "gateway.remote.url is not set" in retinue("agent", "-m", "hi").err


@dataclass(frozen=True)
class Elsewhere:
    """A gateway with a home of its own, and another home that has nothing."""

    url: str
    token: str
    here: Path

    def ask(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        argv = [RETINUE, "agent", "-m", "hi", "--json", *options]
        settings = environment(self.here) | variables
        return subprocess.run(argv, env=settings, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def configure(self, **remote: str) -> None:
        self.here.mkdir(exist_ok=True)
        (self.here / "retinue.json").write_text(json.dumps({"gateway": {"mode": "remote", "remote": remote}}))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    there, port = tmp_path / "there", "0"

    def run(*arguments: str) -> Any:
        settings = environment(there) | {"RETINUE_GATEWAY_PORT": port}
        done = subprocess.run(
            [RETINUE, *arguments, "--json"], env=settings, capture_output=True, text=True, check=True, timeout=SECONDS
        )
        return json.loads(done.stdout)

    with running_server(tmp_path, ["From elsewhere."] * 5) as model:
        configure(there, model)
        url = run("gateway", "start")["url"]
        try:
            token = run("gateway", "token", "create", "--name", "laptop", "--scope", "admin")["token"]
            yield Elsewhere(url, token, tmp_path / "here")
        finally:
            run("gateway", "stop")


@pytest.mark.slow
def test_the_answer_comes_from_there_and_nothing_is_made_here(elsewhere: Elsewhere) -> None:
    by_option = elsewhere.ask("--url", elsewhere.url, RETINUE_GATEWAY_TOKEN=elsewhere.token)
    assert json.loads(by_option.stdout)["text"] == "From elsewhere."
    assert not elsewhere.here.exists()
    elsewhere.configure(url=elsewhere.url.replace("http", "ws"), token=elsewhere.token)
    assert json.loads(elsewhere.ask().stdout)["text"] == "From elsewhere."
    assert not (elsewhere.here / "workspace").exists()
    with_skill = elsewhere.ask("--skill", str(elsewhere.here))
    assert (with_skill.returncode, "--skill" in with_skill.stdout) == (2, True)


@pytest.mark.slow
def test_without_the_right_token_nobody_is_let_in_and_the_wrong_one_is_not_shown(elsewhere: Elsewhere) -> None:
    wrong = "not-the-token-0123456789"
    refused = elsewhere.ask("--url", elsewhere.url, "--token", wrong)
    assert refused.returncode == 1
    assert "token" in json.loads(refused.stdout)["error"]["message"].lower()
    assert wrong not in refused.stdout + refused.stderr
