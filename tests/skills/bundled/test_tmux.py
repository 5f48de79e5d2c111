"""Interactive programs in tmux."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Script]:
    workspace = Workspace(tmp_path, {"TMUX_TMPDIR": str(tmp_path), "TERM": "xterm"})
    yield script("tmux", "pane.py", workspace)
    subprocess.run(["tmux", "-L", "retinue", "kill-server"], env=workspace.env, capture_output=True, check=False)


@pytest.mark.slow
@needs_tmux
def test_a_dialogue_with_a_program(pane: Script) -> None:
    question = 'printf "name? "; read -r name; echo "hello $name"; exit 3'
    pane.run("start", "ask", "--", "sh", "-c", question)
    pane.run("wait", "ask", "name[?] $", "--timeout", 20)
    pane.run("send", "ask", "Ada; -l;")
    assert "hello Ada; -l;" in pane.run("wait", "ask", "^hello", "--timeout", 20)
    assert "ended with status 3" in pane.fail("wait", "ask", "never", "--timeout", 20)
    assert "ended with status 3" in pane.fail("send", "ask", "more")
    assert pane.json("list") == [{"name": "ask", "running": False, "exit_status": 3, "program": "sh"}]
    assert "Pane is dead" not in pane.run("show", "ask")
    pane.run("stop", "ask")
    assert pane.run("list") == "No sessions.\n"


@pytest.mark.slow
@needs_tmux
def test_keys_reach_the_program(pane: Script) -> None:
    pane.run("start", "cat", "--", "cat", "-v")
    pane.run("send", "cat", "C-c", "--no-enter")
    pane.run("keys", "cat", "Enter")
    assert "C-c\nC-c" in pane.run("wait", "cat", r"C-c\nC-c", "--timeout", 20)
    pane.run("keys", "cat", "C-c")
    assert "ended by a signal" in pane.fail("wait", "cat", "never", "--timeout", 20)


@pytest.mark.slow
@needs_tmux
def test_waiting_ends_in_time_and_shows_the_screen(pane: Script) -> None:
    pane.run("start", "idle", "--", "sh", "-c", "echo ready; exec cat")
    pane.run("wait", "idle", "ready", "--timeout", 20)
    message = pane.fail("wait", "idle", "^never$", "--timeout", 0.3)
    assert "'^never$' did not come within 0.3 s:\nready" in message
    assert "not a regular expression" in pane.fail("wait", "idle", "(")
    assert "exists already" in pane.fail("start", "idle", "--", "cat")


@pytest.mark.slow
@needs_tmux
def test_what_scrolled_away_can_be_shown(pane: Script) -> None:
    pane.run("start", "count", "--", "sh", "-c", "seq 1 100; exec cat")
    pane.run("wait", "count", "^100$", "--timeout", 20)
    assert pane.run("show", "count", "--lines", 3) == "98\n99\n100\n"
    assert pane.run("show", "count").startswith("1\n2\n")


@needs_tmux
def test_sessions_that_do_not_exist_are_reported(pane: Script) -> None:
    assert pane.json("list") == []
    for command in (("send", "x", "text"), ("keys", "x", "Enter"), ("wait", "x", "y"), ("show", "x"), ("stop", "x")):
        assert "there is no session 'x'" in pane.fail(*command)
    assert "name the program after --" in pane.fail("start", "x")


def test_arguments_are_checked(workspace: Workspace) -> None:
    pane = script("tmux", "pane.py", workspace)
    assert "letters, digits" in pane.misuse("start", "a:b", "--", "cat")
    assert "between 0 and 3600" in pane.misuse("wait", "a", "x", "--timeout", "-1")


def test_without_tmux_the_message_says_so(tmp_path: Path) -> None:
    pane = script("tmux", "pane.py", Workspace(tmp_path, {"PATH": str(tmp_path)}))
    assert "tmux is not installed" in pane.fail("list")
