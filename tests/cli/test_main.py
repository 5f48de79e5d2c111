"""The command line starts light, and every mistake gets a message that helps."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from retinue import __version__
from retinue.cli.main import COMMANDS, cli, run

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
    assert all(name in shown for name in COMMANDS)


def test_every_command_loads_and_takes_the_common_options() -> None:
    import click

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
    assert "not a profile name" in capsys.readouterr().err
