"""`retinue approvals` from another terminal, and runs that nobody watches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.modelserver import running_server
from tests.cli.test_chat import RETINUE, configure, environment

pytestmark = pytest.mark.slow

TOUCH = {"call": {"name": "exec", "arguments": {"command": "touch made.txt"}}}


@dataclass(frozen=True)
class Shell:
    """A shell in which `retinue` runs on one home, without a terminal."""

    home: Path

    def run(self, *arguments: str, code: int = 0, **more: str) -> str:
        done = subprocess.run(
            [RETINUE, *arguments],
            env=environment(self.home) | more,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 or "--json" in arguments else done.stderr

    def data(self, *arguments: str, code: int = 0, **more: str) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code, **more))

    @contextmanager
    def waiting(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A run that waits for an answer, and the id of its question."""
        argv = [RETINUE, "agent", "-m", "make a file", "--approvals", "wait", "--json"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, env=environment(self.home), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                assert process.stderr is not None
                asked = next(line for line in process.stderr if '"event": "approval"' in line)
                yield process, json.loads(asked)["id"]
            finally:
                process.kill()


Serve = Callable[..., Shell]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A home whose model says these things."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(*replies: object) -> Shell:
            port = stack.enter_context(running_server(tmp_path, replies))
            configure(tmp_path / "home", port)
            return Shell(tmp_path / "home")

        yield start


def answer_of(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.read())


def made(shell: Shell) -> bool:
    return (shell.home / "workspace" / "made.txt").exists()


def test_a_run_that_waits_is_allowed_from_another_terminal(serve: Serve) -> None:
    shell = serve(TOUCH, "Done.")
    with shell.waiting() as (process, code):
        [listed] = shell.data("approvals", "list")
        assert (listed["id"], listed["state"], listed["tool"], listed["agent"]) == (code, "pending", "exec", "main")
        assert "touch made.txt" in listed["detail"]
        text = shell.run("approvals", "list")
        assert f"/approve {code} allow-once" in text
        missing = shell.run("approvals", "allow", "9zzz", code=2)
        assert f"There is no approval '9zzz'. Pending: {code} (Run a command" in missing
        changed = shell.run("approvals", "allow", code, "--binding", "something else", code=2)
        assert "has changed since it was shown" in changed
        inside = shell.data("approvals", "allow", code, code=1, RETINUE_SHELL="exec")
        assert inside["error"]["kind"] == "NotAnApprover"
        allowed = shell.data("approvals", "allow", code, "--binding", listed["binding"])
        assert allowed["state"] == "allowed-once"
        assert "at the command line" in allowed["decidedBy"]
        assert answer_of(process)["text"] == "Done."
    assert made(shell)
    late = shell.data("approvals", "deny", code, code=1)
    assert late["error"]["kind"] == "AlreadySettled"
    assert shell.run("approvals", "list") == "There are no pending approval requests.\n"
    assert [item["id"] for item in shell.data("approvals", "list", "--all")] == [code]


def test_the_only_question_is_denied_with_a_reason(serve: Serve) -> None:
    shell = serve(TOUCH, "I may not.")
    assert "No approvals are pending" in shell.run("approvals", "deny", code=2)
    with shell.waiting() as (process, code):
        assert shell.run("approvals", "deny", "--reason", "too late").startswith(f"{code} is denied by ")
        assert answer_of(process)["toolCalls"][0]["is_error"]
    assert not made(shell)


def test_what_is_allowed_for_good_is_a_rule_that_can_be_removed(serve: Serve) -> None:
    shell = serve(TOUCH, "Done.", TOUCH, "Again.", TOUCH, "No.")
    with shell.waiting() as (process, code):
        shell.run("approvals", "allow", code, "--always")
        assert not answer_of(process)["toolCalls"][0]["is_error"]
    shell.run("agent", "-m", "again")
    [rule] = shell.data("approvals", "rules")
    assert (rule["pattern"], rule["uses"], rule["lastUsedCommand"]) == ("touch made.txt", 1, "touch made.txt")
    assert rule["addedBy"].endswith("at the command line")
    assert "touch made.txt" in shell.run("approvals", "rules")
    assert "There is no stored rule" in shell.run("approvals", "rules", "--remove", "9zzz", code=2)
    assert shell.data("approvals", "rules", "--remove", rule["id"])["removed"]["id"] == rule["id"]
    assert shell.data("agent", "-m", "once more")["toolCalls"][0]["is_error"]


def test_a_rule_is_added_by_hand(serve: Serve) -> None:
    shell = serve(TOUCH, "Done.")
    assert "`retinue approvals rules --add PATTERN` adds one" in shell.run("approvals", "rules")
    added = shell.data("approvals", "rules", "--add", "touch *")["added"]
    assert (added["agent"], added["pattern"], added["uses"]) == ("main", "touch *", 0)
    shell.run("agent", "-m", "make a file")
    assert made(shell)
    assert "no agent 'nobody'" in shell.run("approvals", "rules", "--agent", "nobody", code=2)
    assert "not both" in shell.run("approvals", "rules", "--add", "ls", "--remove", "x", code=2)


@pytest.mark.parametrize("option", [(), ("--approvals", "deny")])
def test_without_a_terminal_a_question_is_denied_at_once(serve: Serve, option: tuple[str, ...]) -> None:
    shell = serve(TOUCH, "I may not.")
    assert shell.data("agent", "-m", "make a file", *option)["toolCalls"][0]["is_error"]
    assert not made(shell)
    [kept] = shell.data("approvals", "list", "--all")
    assert kept["state"] == "denied"


def test_a_killed_run_leaves_an_interrupted_call_and_a_withdrawn_question(serve: Serve) -> None:
    shell = serve(TOUCH, "Picked up.", "Hello again.")
    with shell.waiting() as (process, code):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    refused = shell.data("approvals", "allow", code, code=1)
    assert "withdrawn (the process that made the request has ended)" in refused["error"]["message"]
    assert shell.data("agent", "-m", "hello")["text"] == "Hello again."
    told = json.dumps(shell.data("sessions", "show", "main"))
    assert "interrupted" in told
    assert not made(shell)
    assert [item["state"] for item in shell.data("approvals", "list", "--all")] == ["withdrawn"]
