"""`retinue logs`: the newest records, and those to come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand

HELLO = "2026-01-01 10:00:00,000 INFO retinue.a hello"
BROKE = "2026-01-01 10:00:01,000 ERROR retinue.b [agent=main session=agent:main:main run=r1] it broke"


@pytest.fixture
def log(home: Path) -> Path:
    path = home / "logs" / "retinue.log"
    path.parent.mkdir(parents=True)
    path.write_text(f"{HELLO}\n{BROKE}\n")
    return path


def test_a_home_without_a_log_says_so(home: Path, retinue: RunCommand) -> None:
    assert "There is no log yet" in retinue("logs").out
    assert retinue("logs", "--json").data == []


def test_a_log_that_cannot_be_read_is_an_error_and_not_empty(home: Path, retinue: RunCommand) -> None:
    (home / "logs" / "retinue.log").mkdir(parents=True)
    ran = retinue("logs")
    assert (ran.code, ran.out) == (1, "")
    assert "'retinue.log' in" in ran.err


def test_records_can_be_chosen(log: Path, retinue: RunCommand) -> None:
    assert retinue("logs").out == f"{HELLO}\n{BROKE}\n"
    assert retinue("logs", "-n", "1").out == f"{BROKE}\n"
    assert retinue("logs", "--level", "error").out == f"{BROKE}\n"
    (found,) = retinue("logs", "--session", "agent:main:main", "--json").data
    assert (found["run"], found["message"]) == ("r1", "it broke")


def test_the_configured_file_is_read(log: Path, home: Path, retinue: RunCommand) -> None:
    assert retinue("config", "set", "logging.file", "logs/other.log").code == 0
    (home / "logs" / "other.log").write_text(f"{BROKE}\n")
    assert retinue("logs").out == f"{BROKE}\n"
    assert retinue("status", "--json").data["lastErrors"][0]["message"] == "it broke"


def test_what_would_move_the_cursor_is_shown_as_text(log: Path, retinue: RunCommand) -> None:
    log.write_text(f"{HELLO} \x1b[2J\n")
    assert retinue("logs").out == f"{HELLO} ⟨U+001B⟩[2J\n"


@pytest.mark.slow
def test_following_goes_on_after_a_rotation(log: Path, home: Path) -> None:
    command = [sys.executable, "-m", "retinue", "logs", "-f", "--json", "-n", "1"]
    environment = {**os.environ, "RETINUE_HOME": str(home)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["message"] == "it broke"
            log.replace(log.with_name("retinue.log.1"))
            log.write_text(f"{HELLO} again\n")
            assert json.loads(process.stdout.readline())["message"] == "hello again"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
