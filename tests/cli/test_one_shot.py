"""`retinue agent -m`: one question, stopped by Ctrl-C, printed where nobody takes it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pexpect
import pytest

from retinue.testing.modelserver import running_server
from tests.cli.test_chat import RETINUE, SECONDS, configure, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def ask(home: Path, text: str) -> subprocess.CompletedProcess[str]:
    argv = [RETINUE, "agent", "-m", text, "--json"]
    return subprocess.run(argv, env=environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL)


def messages(home: Path) -> list[dict[str, Any]]:
    argv = [RETINUE, "sessions", "show", "main", "--json"]
    shown = subprocess.run(argv, env=environment(home), capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(shown.stdout)["messages"]
    return found


def test_ctrl_c_stops_the_turn_for_good(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [{"say": "This goes on ", "fault": "hang"}, "Answer to the second."]) as port:
        configure(home, port)
        argv = [RETINUE, "agent", "-m", "the first"]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, env=environment(home), stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL) as asked:
            assert asked.stdout is not None
            assert asked.stdout.read(4) == b"This"
            asked.send_signal(signal.SIGINT)
            _, err = asked.communicate(timeout=SECONDS)
        assert (asked.returncode, b"Stopped." in err) == (130, True)
        again = ask(home, "the second")
    # Nothing is done about the first any more: the only other reply of the model answers the second.
    assert json.loads(again.stdout)["text"] == "Answer to the second."
    assert "interrupted" not in again.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_printed_is_kept(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, ["A precious answer."]) as port:
        configure(home, port)
        with Path("/dev/full").open("w") as nowhere:
            argv = [RETINUE, "agent", "-m", "hi"]
            done = subprocess.run(
                argv, env=environment(home), stdout=nowhere, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
            )
    assert done.returncode == 1
    assert "error: System error: no space left on device." in done.stderr
    assert "A precious answer." in json.dumps(messages(home)[-1])


def test_a_person_sees_the_answer_and_a_program_the_acknowledgement(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, ["Hello.", "Hello."]) as port:
        configure(home, port)
        argv = ["agent", "-m", "hi"]
        shown = pexpect.run(f"{RETINUE} {' '.join(argv)}", env=environment(home), encoding="utf-8", timeout=SECONDS)
        piped = subprocess.run(
            [RETINUE, *argv], env=environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    assert isinstance(shown, str)
    assert shown.strip() == "Hello."
    assert (piped.stdout, piped.stderr) == ("Hello.\n", ""), "ids are for programs, which use --json"


def test_the_last_two_prompts_are_compared(home: Path, tmp_path: Path) -> None:
    def moved() -> Any:
        argv = [RETINUE, "prompt", "diff", "--json"]
        done = subprocess.run(argv, env=environment(home), capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["moved"]

    with running_server(tmp_path, ["Hello.", "Hello."]) as port:
        configure(home, port)
        ask(home, "hi")
        assert moved() is None
        (home / "workspace" / "TOOLS.md").write_text("The printer is called Otto.")
        ask(home, "hi again")
        assert moved()["name"] == "file:TOOLS.md"


def test_a_piped_text_over_the_limit_is_refused_with_the_limit(home: Path) -> None:
    done = subprocess.run(
        [RETINUE, "agent"], env=environment(home), capture_output=True, text=True, input="x" * 10_000_000
    )
    assert done.returncode == 1
    assert "The message is too large: 1,000,000 characters are allowed." in done.stderr
