"""Questions in a real chat in a real terminal."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pexpect
import pytest

from retinue.testing.modelserver import running_server
from tests.cli.test_chat import PROMPT, RETINUE, chat, configure, enter, environment, say

pytestmark = pytest.mark.slow

CHOICES = r"\[n\]o  \[y\]es, once  \[a\]lways  \((\w{4})\)"
TOUCH = {"call": {"name": "exec", "arguments": {"command": "touch made.txt"}}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def run(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [RETINUE, *arguments], env=environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_key_answers_and_always_is_remembered(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "Made.", TOUCH, "Made again.", "Bye."]) as port:
        configure(home, port)
        with chat(home) as child:
            enter(child, "make a file")
            child.expect("touch made.txt")
            child.expect(CHOICES)
            child.send("x\r")
            assert not (home / "workspace" / "made.txt").exists()
            child.send("a")
            child.expect("Allowed permanently: allowed at the terminal")
            child.expect("Made.")
            child.expect(PROMPT)
            say(child, "again", "Made again.")
            say(child, "/allowlist", "touch made.txt")


def test_one_key_answers_a_question_of_a_single_turn(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "Made."]) as port:
        configure(home, port)
        variables = environment(home)
        del variables["PROMPT_TOOLKIT_NO_CPR"]
        child = pexpect.spawn(RETINUE, ["agent", "-m", "make a file"], env=variables, encoding="utf-8", timeout=60)
        try:
            child.expect(CHOICES)
            assert "\x1b[6n" not in (child.before or ""), "the terminal was asked for the cursor's position"
            child.send("x\r")
            child.send("y")
            child.expect("Allowed once: allowed at the terminal")
            child.expect("Made.")
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)
    assert (home / "workspace" / "made.txt").exists()


def test_the_question_goes_away_when_it_is_answered_elsewhere(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "I may not.", "Still here."]) as port:
        configure(home, port)
        with chat(home) as child:
            enter(child, "make a file")
            child.expect(CHOICES)
            assert isinstance(child.match, re.Match)
            run(home, "approvals", "deny", child.match.group(1))
            child.expect("Not allowed: denied by .* at the command line")
            child.expect("I may not.")
            child.expect(PROMPT)
            say(child, "y", "Still here.")
    assert not (home / "workspace" / "made.txt").exists()


def test_what_was_typed_before_the_question_does_not_answer_it(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "I may not.", "One.", "Two."]) as port:
        configure(home, port)
        with chat(home) as child:
            child.send("make a file\ry\ry\r")
            child.expect(CHOICES)
            child.send("n")
            child.expect("Not allowed: denied at the terminal")
            child.expect("I may not.")
            child.expect("Two.")
    assert not (home / "workspace" / "made.txt").exists()


def test_ctrl_c_at_a_question_stops_the_turn_and_not_the_chat(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "After the stop."]) as port:
        configure(home, port)
        with chat(home) as child:
            enter(child, "make a file")
            child.expect(CHOICES)
            child.sendintr()
            child.expect("stopped")
            child.expect(PROMPT)
            say(child, "still there?", "After the stop.")
    assert not (home / "workspace" / "made.txt").exists()


def test_an_idle_chat_is_asked_what_another_process_wants(home: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, [TOUCH, "Made."]) as port:
        configure(home, port)
        with chat(home) as child:
            child.send("half a lin")
            child.expect("half a lin")
            argv = [RETINUE, "agent", "-m", "make a file"]
            pipe = subprocess.PIPE
            with subprocess.Popen(
                argv, env=environment(home), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
            ) as other:
                try:
                    child.expect(CHOICES)
                    child.send("y")
                    child.expect("Allowed once")
                    child.expect("half a lin")
                    assert other.communicate(timeout=60)[0] == "Made.\n"
                finally:
                    other.kill()
            assert (home / "workspace" / "made.txt").exists()
