"""`retinue models`: which model answers, whether it does, and the keys that never show."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pexpect
import pytest
from anyio.from_thread import start_blocking_portal

from retinue.providers.model_choice import LocalServers
from retinue.providers.vendors import VENDORS
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import Reply, refuses, says
from tests.cli.conftest import RunCommand

KEY = "sk-ant-abcdefghijklmnop0123"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def bare_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys in the environment, and no model servers where they are usually looked for."""
    for vendor in VENDORS:
        for variable in vendor.variables:
            monkeypatch.delenv(variable, raising=False)
    usual = LocalServers()
    monkeypatch.setattr(LocalServers.__init__, "__defaults__", (NOWHERE, NOWHERE, usual.ask_ollama, usual.ask_llamacpp))


@contextmanager
def serving(*replies: Reply) -> Iterator[ModelServer]:
    """A model server in a thread of its own: the commands bring their own event loop."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ModelServer(*replies)) as server:
        yield server


def configure(home: Path, config: dict[str, Any]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "retinue.json").write_text(json.dumps(config))


def own_server(url: str, **model: Any) -> dict[str, Any]:
    return {"baseUrl": f"{url}/v1", "models": [{"id": "small", **model}]}


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_without_any_model_the_list_says_how_to_get_one(retinue: RunCommand, home: Path) -> None:
    ran = retinue("models", "list")
    assert ran.code == 0
    assert "retinue models pull" in ran.out
    assert retinue("models", "list", "--json").data["chosen"] is None
    assert not home.exists()


def test_list_says_which_model_answers_and_why(retinue: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    found = retinue("models", "list", "--json").data
    assert found["chosen"]["model"] == "anthropic/claude-sonnet-5-5"
    assert "Anthropic" in found["chosen"]["because"]
    assert found["aliases"]["sonnet"] == "anthropic/claude-sonnet-5-5"
    assert {row["model"].partition("/")[0] for row in found["models"]} == {"anthropic"}
    text = retinue("models", "list").out
    assert text.startswith("anthropic/claude-sonnet-5-5 is selected for agent 'main'")
    assert KEY not in text


def test_list_shows_what_is_known_of_a_model(retinue: RunCommand, home: Path) -> None:
    server = own_server(
        NOWHERE,
        name="Small One",
        contextWindow=16384,
        cost={"input": 1.5, "output": 3},
        compat={"supportsTools": False},
    )
    configure(
        home,
        {
            "models": {"providers": {"lab": server}},
            "agents": {
                "defaults": {
                    "model": {"primary": "mini", "fallbacks": ["openai/gpt-5.4"]},
                    "models": {"lab/small": {"alias": "mini"}},
                }
            },
        },
    )
    found = retinue("models", "list", "--json").data
    assert found["chosen"] == {
        "model": "lab/small",
        "because": "it is configured",
        "howToChange": "retinue models set <provider/model>",
    }
    assert found["fallbacks"] == ["openai/gpt-5.4"]
    row = found["models"][0]
    assert (row["model"], row["name"], row["aliases"]) == ("lab/small", "Small One", ["mini"])
    assert (row["window"], row["tools"], row["ready"]) == (16384, False, True)
    assert (row["price"]["input"], row["price"]["output"]) == (1.5, 3)
    line = next(line for line in retinue("models", "list").out.splitlines() if "Small One" in line)
    assert "16,384" in line
    assert "1.5 / 3" in line
    assert "no tools" in line


def test_list_all_adds_models_that_have_no_key(retinue: RunCommand) -> None:
    assert retinue("models", "list", "--json").data["models"] == []
    rows = {row["model"]: row for row in retinue("models", "list", "--all", "--json").data["models"]}
    assert rows["openai/gpt-5.4"]["ready"] is False


def test_an_agent_can_have_another_model(retinue: RunCommand, home: Path) -> None:
    agents = [{"id": "main", "default": True}, {"id": "work", "model": "openai/gpt-5.4-mini"}]
    configure(home, {"agents": {"defaults": {"model": "openai/gpt-5.4"}, "list": agents}})
    assert retinue("models", "list", "--json").data["chosen"]["model"] == "openai/gpt-5.4"
    assert retinue("models", "list", "--agent", "work", "--json").data["chosen"]["model"] == "openai/gpt-5.4-mini"
    assert retinue("models", "list", "--agent", "nobody").code == 2


def test_a_model_that_answers_passes(retinue: RunCommand, home: Path) -> None:
    with serving(says("ok"), says("ok")) as server:
        configure(
            home,
            {
                "models": {"providers": {"lab": own_server(server.url, cost={"input": 10, "output": 10})}},
                "agents": {"defaults": {"model": "lab/small"}},
            },
        )
        ran = retinue("models", "test", "--json")
        assert ran.code == 0
        assert (ran.data["ok"], ran.data["model"], ran.data["text"]) == (True, "lab/small", "ok")
        assert ran.data["usage"] == {"input": 100, "output": 20, "cacheRead": 0, "cacheWrite": 0, "cost": 0.0012}
        assert ran.data["failures"] == []
        assert "lab/small answers: ok" in retinue("models", "test", "lab/small").out
        asked = server.model_requests[0].json
        assert asked["model"] == "small"
        assert "ok" in asked["messages"][-1]["content"]


def test_a_fallback_answers_and_the_failure_is_told(retinue: RunCommand, home: Path) -> None:
    with serving(refuses(404, "no such model here"), says("ok")) as server:
        configure(
            home,
            {
                "models": {"providers": {"lab": own_server(server.url)}},
                "agents": {"defaults": {"model": {"primary": "lab/gone", "fallbacks": ["lab/small"]}}},
            },
        )
        ran = retinue("models", "test", "--json")
    assert ran.code == 0
    assert ran.data["model"] == "lab/small"
    assert [(each["attempt"], each["reason"]) for each in ran.data["failures"]] == [("lab/gone", "not_found")]
    assert "no such model here" in ran.data["failures"][0]["detail"]
    assert "lab/small answers instead" in ran.err


def test_every_failed_attempt_is_classified(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789abcdef")
    with serving(refuses(401, "bad key sk-wrong-0123456789abcdef"), refuses(400, "prompt is too long")) as server:
        configure(
            home,
            {
                "models": {"providers": {"openai": {"baseUrl": f"{server.url}/v1"}, "lab": own_server(server.url)}},
                "agents": {
                    "defaults": {
                        "model": {"primary": "openai/gpt-5.4", "fallbacks": ["anthropic/claude-opus-5", "lab/small"]}
                    }
                },
            },
        )
        ran = retinue("models", "test", "--json")
    assert ran.code == 1
    assert ran.data["ok"] is False
    reasons = {each["attempt"]: each["reason"] for each in ran.data["failures"]}
    assert reasons == {
        "anthropic/claude-opus-5": "auth",
        "openai/gpt-5.4 (openai:env)": "auth",
        "lab/small": "overflow",
    }
    assert "sk-wrong" not in ran.out + ran.err


def test_a_test_of_a_provider_without_a_key_names_what_to_do(retinue: RunCommand) -> None:
    ran = retinue("models", "test", "opus")
    assert ran.code == 1
    assert "anthropic/claude-opus-5-5: auth" in ran.out
    assert "retinue models auth add anthropic" in ran.out


def test_a_test_without_any_model_fails_with_advice(retinue: RunCommand) -> None:
    ran = retinue("models", "test")
    assert ran.code == 1
    assert "There is no model to talk to yet" in ran.err


def test_set_writes_the_model_and_keeps_the_rest(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    file = home / "retinue.json"
    file.write_text('{agents: {defaults: {model: {primary: "a/b", fallbacks: ["openai/gpt-5"]}}}} // mine\n')
    ran = retinue("models", "set", "sonnet", "--json")
    assert ran.code == 0
    assert ran.data["key"] == "agents.defaults.model.primary"
    assert "// mine" in file.read_text()
    assert "auth add anthropic" in ran.err
    found = retinue("models", "list", "--json").data
    assert (found["chosen"]["model"], found["fallbacks"]) == ("anthropic/claude-sonnet-5-5", ["openai/gpt-5"])
    assert retinue("models", "set", "sonnet", "--json").data["changed"] is False


def test_set_replaces_a_model_given_as_text_and_makes_a_missing_file(retinue: RunCommand, home: Path) -> None:
    assert retinue("models", "set", "openai/gpt-5").code == 0
    assert "openai/gpt-5" in (home / "retinue.json").read_text()
    (home / "retinue.json").write_text('{agents: {defaults: {model: "openai/gpt-5"}}}')
    assert retinue("models", "set", "gemini/gemini-2.5-pro").code == 0
    assert (home / "retinue.json").read_text() == '{agents: {defaults: {model: "google/gemini-2.5-pro"}}}'


def test_set_tells_of_agents_that_keep_their_own(retinue: RunCommand, home: Path) -> None:
    configure(home, {"agents": {"list": [{"id": "main"}, {"id": "work", "model": "openai/gpt-5"}]}})
    assert "Agent 'work' has its own model" in retinue("models", "set", "opus").err


@pytest.mark.parametrize(("ref", "part"), [("acme/large", "Known: anthropic, openai"), ("sonet", "'sonnet'")])
def test_set_refuses_what_is_no_model(retinue: RunCommand, home: Path, ref: str, part: str) -> None:
    ran = retinue("models", "set", ref)
    assert ran.code == 2
    assert part in ran.err
    assert not home.exists()


def test_pull_lists_what_there_is(retinue: RunCommand, home: Path) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / "qwen3-4b.gguf").write_bytes(b"GGUF")
    rows = {row["name"]: row["here"] for row in retinue("models", "pull", "--list", "--json").data}
    assert rows["smollm2-135m"] is False
    assert rows["qwen3-4b"] is True
    assert "98 MB" in retinue("models", "pull", "--list").out


def test_pull_of_an_unknown_model_names_the_known_ones(retinue: RunCommand) -> None:
    ran = retinue("models", "pull", "gigantic")
    assert ran.code == 2
    assert "smollm2-135m" in ran.err


def test_a_pulled_model_is_kept_and_its_use_explained(retinue: RunCommand, home: Path) -> None:
    folder = home / "models"
    folder.mkdir(parents=True)
    (folder / "smollm2-135m.gguf").write_bytes(b"GGUF tiny")
    digest = hashlib.sha256(b"GGUF tiny").hexdigest()
    (folder / "smollm2-135m.gguf.sha256").write_text(f"{digest}  smollm2-135m.gguf\n")
    ran = retinue("models", "pull")
    assert ran.code == 0
    assert "retinue models set local/smollm2-135m" in ran.out
    has_extra = find_spec("xllamacpp") is not None
    assert ("retinue[local]" in ran.out) is not has_extra
    assert retinue("models", "pull", "--json").data["canRun"] is has_extra
    assert retinue("models", "list", "--json").data["chosen"]["model"] == "local/smollm2-135m"


class _Hub(BaseHTTPRequestHandler):
    """A model hub with one file, whose checksum it states."""

    content = b"GGUF" + b"x" * 3_000_000

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(self.content)))
        self.send_header("x-linked-etag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_pull_tells_its_progress_in_lines(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub() as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        ran = retinue("models", "pull", "qwen2.5-1.5b", "--json")
    assert ran.data["model"] == "local/qwen2.5-1.5b"
    assert Path(ran.data["path"]).read_bytes() == _Hub.content
    lines = ran.err.splitlines()
    assert lines[-2:] == ["downloading: 100 % of 3 MB", "checking"]
    assert len(lines) <= 12


@pytest.mark.slow
def test_pull_shows_a_bar_in_a_terminal(home: Path) -> None:
    with hub() as url:
        environment = {**os.environ, "HF_ENDPOINT": url, "TERM": "xterm"}
        command = [sys.executable, "-m", "retinue", "models", "pull", "qwen2.5-1.5b"]
        child = pexpect.spawn(command[0], command[1:], env=environment, encoding="utf-8", timeout=30)
        child.expect("retinue models set local/qwen2.5-1.5b")
        assert "━" in (child.before or "")
        child.expect(pexpect.EOF)
        child.close()
    assert child.exitstatus == 0


def test_a_key_from_standard_input_is_stored_and_never_shown(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, f"{KEY}\n")
    added = retinue("models", "auth", "add", "claude", "--name", "work", "--key-stdin", "--json")
    assert added.data == {"id": "anthropic:work", "provider": "anthropic", "agent": "main", "replaced": False}
    file = home / "agents" / "main" / "agent" / "auth-profiles.json"
    assert KEY in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    listed = retinue("models", "auth", "list")
    assert "anthropic:work" in listed.out
    assert KEY not in added.out + added.err + listed.out + retinue("models", "auth", "list", "--json").out
    assert retinue("models", "list", "--json").data["chosen"]["model"].startswith("anthropic/")


def test_a_stored_key_is_used(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, KEY)
    retinue("models", "auth", "add", "openai", "--key-stdin")
    with serving(says("ok")) as server:
        configure(home, {"models": {"providers": {"openai": {"baseUrl": f"{server.url}/v1"}}}})
        assert retinue("models", "test", "openai/gpt-5.4").code == 0
        assert server.model_requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert retinue("models", "auth", "list", "--json").data[0]["lastUsed"]


@pytest.mark.slow
def test_on_a_terminal_the_key_is_asked_for_without_echo(home: Path) -> None:
    environment = {**os.environ, "TERM": "xterm"}
    arguments = ["-m", "retinue", "models", "auth", "add", "openai"]
    child = pexpect.spawn(sys.executable, arguments, env=environment, encoding="utf-8", timeout=30)
    child.expect("Key for openai")
    child.waitnoecho()
    child.sendline(KEY)
    child.expect("Added openai:default")
    assert KEY not in (child.before or "")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_variable_is_stored_by_name_alone(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    assert retinue("models", "auth", "add", "openai", "--env", "MY_KEY").err == ""
    assert KEY not in (home / "agents" / "main" / "agent" / "auth-profiles.json").read_text()
    row = retinue("models", "auth", "list", "--json").data[0]
    assert (row["id"], row["where"]) == ("openai:default", "environment variable MY_KEY")
    assert "NOT_THERE is not set." in retinue("models", "auth", "add", "openai", "--env", "NOT_THERE").err


@pytest.mark.parametrize(
    ("arguments", "typed", "part"),
    [
        (("openai", KEY), "", "must not be an argument"),
        ((KEY,), "", "There is no provider '[redacted]'. Known: anthropic"),
        (("acme",), "", "Known: anthropic"),
        (("openai",), "", "--key-stdin"),
        (("openai", "--key-stdin"), "\n", "is not valid"),
        (("openai", "--key-stdin"), "two words", "is not valid"),
        (("openai", "--key-stdin", "--env", "X"), "x", "not both"),
        (("openai", "--env", "$X"), "", "not the name of an environment variable"),
        (("openai", "--key-stdin", "--name", "a b"), "key123", "not a valid profile id"),
        (("local",), "", "without a key"),
        (("ollama",), "", "models.providers.ollama.auth"),
    ],
)
def test_what_cannot_be_added_is_explained(
    retinue: RunCommand,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    typed: str,
    part: str,
) -> None:
    type_in(monkeypatch, typed)
    ran = retinue("models", "auth", "add", *arguments)
    assert ran.code == 2
    assert part in ran.err
    assert KEY not in ran.out + ran.err
    assert not (home / "agents").exists()


def test_a_key_can_be_removed_once(retinue: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, KEY)
    retinue("models", "auth", "add", "openai", "--key-stdin")
    wrong = retinue("models", "auth", "remove", "openai:work")
    assert wrong.code == 2
    assert "Stored keys: openai:default." in wrong.err
    assert retinue("models", "auth", "remove", "openai:default").code == 0
    assert retinue("models", "auth", "remove", "openai:default").code == 2
    assert "There are no keys" in retinue("models", "auth", "list").out


def test_what_is_not_stored_here_is_not_removed(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "Unset that" in retinue("models", "auth", "remove", "openai:env").err
    type_in(monkeypatch, KEY)
    configure(home, {"agents": {"list": [{"id": "main"}, {"id": "work"}]}})
    retinue("models", "auth", "add", "anthropic", "--key-stdin")
    assert retinue("models", "auth", "list", "--agent", "work", "--json").data[0]["origin"] == "main"
    ran = retinue("models", "auth", "remove", "anthropic:default", "--agent", "work")
    assert ran.code == 2
    assert "--agent main" in ran.err
