"""`retinue setup`: a model, the names and a first task, from options and in a terminal."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pexpect
import pytest
from anyio.from_thread import start_blocking_portal

from retinue.cli import models
from retinue.cli.common import Invocation
from retinue.core.approval import IN_COMMAND
from retinue.providers.detect import KNOWN_SERVERS
from retinue.providers.local import engine
from retinue.providers.vendors import VENDORS
from retinue.testing.modelserver import ModelServer, running_server
from retinue.testing.replies import Reply, refuses, says
from tests.cli.conftest import RunCommand

KEY = "sk-ant-abcdefghijklmnop0123"
NOWHERE = "http://127.0.0.1:9"
SECONDS = 90


@pytest.fixture(autouse=True)
def bare_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys in the environment, and no model servers where they are usually looked for."""
    for vendor in VENDORS:
        for variable in vendor.variables:
            monkeypatch.delenv(variable, raising=False)
    configure(home)


def configure(home: Path, **addresses: str) -> None:
    """Write a configuration whose providers are at these addresses; every local server is nowhere."""
    wanted = {server.provider: NOWHERE for server in KNOWN_SERVERS} | addresses
    home.mkdir(parents=True, exist_ok=True)
    providers = {name: {"baseUrl": address, "auth": "none"} for name, address in wanted.items() if name != "anthropic"}
    if "anthropic" in wanted:
        providers["anthropic"] = {"baseUrl": wanted["anthropic"]}
    (home / "retinue.json").write_text(json.dumps({"models": {"providers": providers}}))


@contextmanager
def serving(*replies: Reply, models: tuple[str, ...] = ("test-model",)) -> Iterator[ModelServer]:
    server = ModelServer(*replies, models=models)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield server


def stored_keys(home: Path) -> dict[str, Any]:
    file = home / "agents" / "main" / "agent" / "auth-profiles.json"
    return dict(json.loads(file.read_text())["profiles"]) if file.exists() else {}


def chosen_model(home: Path) -> object:
    return json.loads((home / "retinue.json").read_text()).get("agents", {}).get("defaults", {}).get("model")


def test_options_set_up_everything_without_a_question(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(says("ok")) as server:
        configure(home, anthropic=server.url)
        names = ("--user-name", "Mira", "--agent-name", "Basil", "--temper", "warm")
        ran = retinue("setup", "--yes", "--provider", "anthropic", "--key-env", "MY_KEY", *names, "--json")
        assert server.model_requests[0].headers["x-api-key"] == KEY
    assert ran.code == 0, ran.err
    assert "The key works" in ran.err
    assert ran.data["model"] == "anthropic/claude-sonnet-5-5"
    assert ran.data["next"] == "first"
    assert stored_keys(home)["anthropic:default"]["keyRef"] == {"source": "env", "id": "MY_KEY"}
    assert chosen_model(home) == {"primary": "anthropic/claude-sonnet-5-5"}
    workspace = home / "workspace"
    assert "- **Name:** Mira" in (workspace / "USER.md").read_text()
    assert "- **Name:** Basil" in (workspace / "IDENTITY.md").read_text()
    assert "Friendly and encouraging" in (workspace / "SOUL.md").read_text()
    assert not (workspace / "BOOTSTRAP.md").exists(), "both names are known, so the first conversation is over"


def test_a_piped_key_is_recognised_by_its_shape_and_never_shown(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    with serving(says("ok")) as server:
        configure(home, anthropic=server.url)
        ran = retinue("setup", "--yes", "--key-stdin")
    assert ran.code == 0, ran.err
    assert KEY not in ran.out + ran.err
    assert stored_keys(home)["anthropic:default"]["key"] == KEY


def test_a_wrong_key_is_not_stored_and_the_message_says_where_to_get_one(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(refuses(401, "invalid x-api-key")) as server:
        configure(home, anthropic=server.url)
        ran = retinue("setup", "--yes", "--key-env", "MY_KEY")
    assert ran.code == 1
    assert "Anthropic refuses this key" in ran.err
    assert "https://console.anthropic.com" in ran.err
    assert stored_keys(home) == {}
    assert chosen_model(home) is None


def test_offline_the_key_is_stored_and_the_message_says_so(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    configure(home, anthropic=NOWHERE)
    ran = retinue("setup", "--yes", "--key-env", "MY_KEY")
    assert ran.code == 0
    assert "cannot be reached" in ran.err
    assert "as soon as the connection works" in ran.err
    assert "anthropic:default" in stored_keys(home)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("--provider", "anthropic"), "--key-env"),
        (("--provider", "nobody", "--model", "nobody/x"), "nobody"),
        (("--model", "gpt"), "--provider"),
        (("--provider", "lab", "--model", "m", "--base-url", "ftp://x"), "address"),
        (("--pull", "no-such-model"), "no-such-model"),
    ],
)
def test_wrong_options_are_explained(retinue: RunCommand, options: tuple[str, ...], part: str) -> None:
    ran = retinue("setup", "--yes", *options)
    assert ran.code != 0
    assert part in ran.err


def test_without_a_terminal_the_options_are_named(retinue: RunCommand) -> None:
    ran = retinue("setup")
    assert ran.code == 2
    assert "--yes" in ran.err


def test_detect_finds_keys_and_servers(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "AIza" + "x" * 35)
    with serving(models=("qwen3:8b", "gemma")) as server:
        configure(home, ollama=server.url, vllm=f"{server.url}/v1")
        found = retinue("models", "detect", "--json").data
        assert [(each["provider"], each["models"]) for each in found["servers"]] == [
            ("ollama", ["qwen3:8b", "gemma"]),
            ("vllm", ["qwen3:8b", "gemma"]),
        ]
        assert [key["provider"] for key in found["keys"]] == ["google"]
        assert "ollama/qwen3:8b" in retinue("models", "detect").out
        assert "AIza" not in retinue("models", "detect").out


def test_with_yes_alone_a_server_on_this_machine_is_used(retinue: RunCommand, home: Path) -> None:
    with serving(models=("small",)) as server:
        configure(home, vllm=f"{server.url}/v1")
        ran = retinue("setup", "--yes", "--json")
    assert ran.data["model"] == "vllm/small"
    assert chosen_model(home) == {"primary": "vllm/small"}


def test_with_nothing_on_this_machine_yes_says_what_can_be_named(retinue: RunCommand) -> None:
    ran = retinue("setup", "--yes")
    assert ran.code == 1
    assert "--key-env" in ran.err
    assert "--demo" in ran.err


def test_without_the_extra_nothing_is_downloaded(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_engine", lambda: False)
    monkeypatch.setattr(engine, "installer_command", lambda: ["false", "xllamacpp>=1"])
    ran = retinue("setup", "--yes", "--demo")
    assert ran.code == 1
    assert "false 'xllamacpp>=" in ran.err
    assert not (home / "models").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    up = retinue("up")
    assert up.code == 1
    assert "retinue setup" in up.err
    assert not (home / "models").exists()


class Terminal:
    """A pseudo-terminal with a setup in it."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        command = ["-m", "retinue", *arguments]
        self.child = pexpect.spawn(
            sys.executable, command, env=environment, encoding="utf-8", timeout=SECONDS, dimensions=(50, 120)
        )
        self.seen = io.StringIO()
        self.child.logfile_read = self.seen

    def answer(self, question: str, text: str) -> None:
        self.child.expect_exact(question)
        self.child.sendline(text)

    def end(self) -> int:
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)


@pytest.mark.slow
def test_a_person_is_guided_from_nothing_to_a_first_answer(home: Path, tmp_path: Path) -> None:
    script = [{"fail": 401, "message": "invalid x-api-key"}, "ok", "Basil at your service."]
    with running_server(tmp_path, script) as port:
        configure(home, anthropic=f"http://127.0.0.1:{port}")
        terminal = Terminal("setup")
        terminal.answer("Number, or `skip` [1]", "1")
        terminal.child.expect_exact("Key (not shown)")
        terminal.child.waitnoecho()
        terminal.child.sendline(KEY)
        terminal.child.expect_exact("refuses this key")
        terminal.answer("Number, or `skip` [1]", "1")
        terminal.child.expect_exact("Key (not shown)")
        terminal.child.waitnoecho()
        terminal.child.sendline(KEY)
        terminal.child.expect_exact("The key works")
        terminal.answer("Your name", "Mira")
        terminal.answer("A name for the agent", "Basil")
        terminal.answer("your own words [1]", "as dry as a desert")
        terminal.answer("or `skip` [1]", "2")
        terminal.child.expect_exact("Basil at your service.")
        terminal.child.expect_exact("retinue chat")
        assert terminal.end() == 0
    assert KEY not in terminal.seen.getvalue()
    assert "as dry as a desert" in (home / "workspace" / "SOUL.md").read_text()


@pytest.mark.slow
def test_an_interrupted_setup_continues_and_every_step_can_be_skipped(home: Path, retinue: RunCommand) -> None:
    terminal = Terminal("setup")
    terminal.answer("Number, or `skip` [1]", "skip")
    terminal.child.expect_exact("Your name")
    terminal.child.sendintr()
    assert terminal.end() == 130
    assert retinue("setup", "--status", "--json").data["next"] == "you"
    terminal = Terminal("setup")
    terminal.answer("Your name", "skip")
    terminal.answer("A name for the agent", "skip")
    terminal.child.expect_exact("retinue demo")
    assert terminal.end() == 0
    assert chosen_model(home) is None


def test_the_demo_model_gives_way_to_any_real_model(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"GGUF tiny"
    (home / "models").mkdir()
    (home / "models" / "smollm2-135m.gguf").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (home / "models" / "smollm2-135m.gguf.sha256").write_text(f"{digest}  smollm2-135m.gguf\n")
    monkeypatch.setattr(engine, "has_engine", lambda: True)
    first = retinue("setup", "--yes", "--demo", "--json").data
    assert (first["model"], first["demo"]) == ("local/smollm2-135m", True)
    assert "demo model" in retinue("setup", "--status").out
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    then = retinue("setup", "--status", "--json").data
    assert (then["model"], then["demo"]) == ("anthropic/claude-sonnet-5-5", False)


def test_the_missing_extra_is_installed_only_with_consent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "installed"
    invocation = Invocation()
    monkeypatch.setattr(engine, "has_engine", mark.exists)
    monkeypatch.setattr(engine, "installer_command", lambda: ["touch", str(mark)])
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    assert not models.ensure_engine(invocation, ask=True)
    assert not mark.exists()
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    assert models.ensure_engine(invocation, ask=True)
    assert mark.exists()


def test_a_command_of_an_agent_cannot_set_anything_up(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(IN_COMMAND, "1")
    ran = retinue("setup", "--yes", "--user-name", "Mallory")
    assert ran.code == 2
    assert "Run it in a terminal" in ran.err
    assert not (home / "workspace").exists()


def test_a_model_that_is_gone_opens_its_step_again(retinue: RunCommand, home: Path) -> None:
    (home / "setup.json").write_text('{"completed": ["model", "first"], "skipped": []}')
    found = retinue("setup", "--status", "--json").data
    assert [step["id"] for step in found["steps"] if step["done"]] == ["first"]
    (home / "setup.json").write_text("damaged")
    assert retinue("setup", "--status", "--json").data["next"] == "model"
