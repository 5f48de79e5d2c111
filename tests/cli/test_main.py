"""The command line starts light, and every mistake gets a message that helps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from retinue import __version__
from retinue.cli.main import COMMANDS, cli, run
from retinue.core.errors import RetinueError

HEAVY = ("pydantic", "openai", "anthropic", "google", "rich", "prompt_toolkit", "yaml", "anyio", "httpx2", "numpy")


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(flag: str) -> None:
    code = (
        f"import sys; from retinue.cli.main import run; run([{flag!r}]); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(shown.count(f"\n  {name} ") == 1 for name in COMMANDS)


def test_every_command_loads_and_takes_the_common_options() -> None:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        commands = [command, *getattr(command, "commands", {}).values()]
        for each in commands:
            options = {option for parameter in each.params for option in parameter.opts}
            assert {"--home", "--profile", "--json", "--quiet"} <= options, (name, each.name)


def test_a_mistyped_command_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["confg"]) == 2
    assert "Did you mean 'config'?" in capsys.readouterr().err


def test_an_unknown_command_points_to_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["zzz"]) == 2
    assert "`retinue --help` lists the commands" in capsys.readouterr().err


def test_usage_errors_are_json_when_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "get", "--json", "--nonsense"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"


def test_a_bad_profile_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "path", "--profile", "../x"]) == 2
    assert "not a valid profile name" in capsys.readouterr().err


def test_the_help_of_a_group_tells_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Validate the configuration: errors, warnings, and keys that are accepted but not used yet." in shown


def test_a_home_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert run(["status", "--home", str(file)]) == 2
    assert f"{file} is a file" in capsys.readouterr().err


def test_what_the_system_refuses_becomes_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    (home / "logs" / "gateway.out").mkdir(parents=True)
    assert run(["gateway", "start", "--home", str(home)]) == 1
    assert "error: 'gateway.out' in" in capsys.readouterr().err
    assert run(["gateway", "start", "--home", str(home), "--json"]) == 1
    assert "is a folder" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert "IsADirectoryError" in (home / "logs" / "retinue.log").read_text()


def test_an_error_of_a_task_is_told_as_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @click.command()
    def failing() -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [RetinueError("It did not work.")])])

    monkeypatch.setattr("retinue.cli.main.cli", failing)
    assert run([]) == 1


def test_a_mistake_of_the_program_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise ExceptionGroup("tasks", [KeyError("a mistake")])

    monkeypatch.setattr("retinue.cli.main.cli", failing)
    with pytest.raises(KeyError):
        run([])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", ["> /dev/full", "<&-"])
def test_streams_that_take_nothing_or_are_closed_leave_no_traceback(tmp_path: Path, redirection: str) -> None:
    command = f"{sys.executable} -m retinue --home {tmp_path / 'home'} status {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert (done.returncode, "no space left" in done.stderr) == ((1, True) if "full" in redirection else (0, False))


@pytest.mark.slow
def test_letters_that_the_terminal_lacks_do_not_end_a_command(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "retinue", "doctor", "--home", str(tmp_path / "home")]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(argv, env=environment, capture_output=True, encoding="latin-1")
    assert "Traceback" not in done.stderr
    assert "? workspace: Agent 'main' has no workspace" in done.stdout
