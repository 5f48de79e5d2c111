"""`retinue plugins`: what there is, why one is off, and switching it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand

PLUGIN = """

from retinue.plugins.hookspecs import hookimpl

@hookimpl
def retinue_register(register):
    register.hook("turn_end", "cli_desk:told")
"""


@pytest.fixture
def desk(home: Path, retinue: RunCommand) -> Iterator[Path]:
    """A home whose configuration names a plugin in it."""
    home.mkdir()
    (home / "cli_desk.py").write_text(PLUGIN)
    assert retinue("config", "set", "plugins.load.paths", '["cli_desk.py"]').code == 0
    yield home / "cli_desk.py"
    sys.modules.pop("cli_desk", None)


def test_without_plugins_it_says_where_to_read_on(retinue: RunCommand) -> None:
    assert "docs/plugins.md" in retinue("plugins", "list").out
    listed = {row["id"]: row for row in retinue("plugins", "list", "--json").data}
    assert {"retinue", "gpt-5", "qmd", "docker", "batch-embeddings", "lossless"} <= set(listed)
    assert {row["source"] for row in listed.values()} == {"built-in"}
    assert listed["docker"]["registers"] == ["sandbox docker", "sandbox podman"]
    assert listed["qmd"]["slots"] == ["memory"]


def test_a_built_in_plugin_can_be_disabled_and_the_core_cannot(home: Path, retinue: RunCommand) -> None:
    home.mkdir()
    (home / "retinue.json").write_text('{"plugins": {"deny": ["qmd", "retinue"]}, "memory": {"backend": "qmd"}}')
    states = {row["id"]: row["state"] for row in retinue("plugins", "list", "--json").data}
    assert (states["qmd"], states["retinue"], states["docker"]) == ("off", "on", "on")
    slots = retinue("status", "--json").data["slots"]
    assert slots["memory"]["servedBy"] == "built-in"
    assert slots["memory"]["reason"] == "plugins.deny includes it"


def test_a_plugin_is_listed_described_and_switched(desk: Path, retinue: RunCommand) -> None:
    row = retinue("plugins", "list", "--json").data[-1]
    assert row == {
        "id": "cli_desk",
        "version": "",
        "description": "",
        "state": "on",
        "reason": "",
        "source": "config",
        "from": str(desk),
        "registers": ["hook turn_end"],
        "slots": [],
    }
    assert "hook turn_end" in retinue("plugins", "info", "cli_desk").out
    off = retinue("plugins", "disable", "cli_desk")
    assert off.out == "cli_desk is off: plugins.entries.cli_desk.enabled is false.\n"
    assert retinue("plugins", "list", "--json").data[-1]["state"] == "off"
    assert retinue("plugins", "enable", "cli_desk").out == "cli_desk is on.\n"
    assert "Plugins: cli_desk, retinue," in retinue("plugins", "info", "other").err


def test_a_broken_plugin_is_told_by_the_list_and_the_doctor(desk: Path, retinue: RunCommand) -> None:
    desk.write_text("raise ValueError('no luck')")
    listed = retinue("plugins", "list")
    assert listed.code == 1
    assert "no luck" in listed.out
    findings = retinue("doctor", "--json").data["findings"]
    (found,) = [each for each in findings if each["area"] == "plugins"]
    assert found["what"] == "Plugin 'cli_desk' could not be loaded: ValueError: no luck"


@pytest.mark.slow
def test_what_is_logged_does_not_stand_between_results(desk: Path, home: Path) -> None:
    desk.write_text("raise ValueError('no luck')")
    argv = [sys.executable, "-m", "retinue", "plugins", "list", "--home", str(home)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
