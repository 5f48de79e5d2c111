"""Writing, checking, installing, updating and removing plugins, from each kind of source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.cli.conftest import home as home
from tests.cli.conftest import retinue as retinue
from tests.plugins.wheel import write_wheel


@pytest.fixture(autouse=True)
def fresh_imports() -> Iterator[None]:
    before, path = set(sys.modules), [*sys.path]
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith(("my_desk", "sample_desk")):
            del sys.modules[name]


@pytest.fixture
def desk(tmp_path: Path, retinue: RunCommand) -> Path:
    """A plugin as `plugins new` writes it."""
    folder = tmp_path / "my-desk"
    written = retinue("plugins", "new", "my-desk", "--dir", str(folder), "--json")
    assert written.code == 0, written.err
    assert len(written.data["files"]) == 6
    return folder


def states(retinue: RunCommand) -> dict[str, str]:
    return {row["id"]: row["state"] for row in retinue("plugins", "list", "--json").data}


@pytest.mark.slow
def test_a_new_plugin_passes_its_test_and_has_no_problems(desk: Path, retinue: RunCommand) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(desk)]
    done = subprocess.run(argv, cwd=desk, capture_output=True, text=True, env={**os.environ, "PYTEST_ADDOPTS": ""})
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert retinue("plugins", "check", str(desk), "--json").data["problems"] == []
    (desk / "my_desk" / "tools.py").write_text("import no_such_module\n")
    sys.modules.pop("my_desk.tools", None)
    checked = retinue("plugins", "check", str(desk), "--json")
    assert checked.code == 1
    assert "the module 'no_such_module' is not installed" in checked.data["problems"][0]
    assert "exists already" in retinue("plugins", "new", "my-desk", "--dir", str(desk)).err
    assert "lower-case letters" in retinue("plugins", "new", "My Desk").err


def test_a_folder_is_installed_with_consent_updated_and_removed(desk: Path, retinue: RunCommand, home: Path) -> None:
    manifest = desk / "my_desk" / "retinue.plugin.json"
    refused = retinue("plugins", "install", str(desk))
    assert refused.code != 0
    assert "tools my-desk" in refused.err
    assert "all your permissions" in refused.err
    assert "Repeat the command with --yes" in refused.err
    assert "my-desk" not in states(retinue)
    installed = retinue("plugins", "install", str(desk), "--yes", "--json")
    assert (installed.code, installed.data["state"], installed.data["source"]) == (0, "on", "home"), installed.err
    assert "update my-desk" in retinue("plugins", "install", str(desk), "--yes").err
    declared = json.loads(manifest.read_text())
    declared["version"] = "0.2.0"
    declared["capabilities"]["hooks"] = {"before_prompt_build": "my_desk.tools:make_tools"}
    manifest.write_text(json.dumps(declared))
    asked = retinue("plugins", "update", "my-desk")
    assert "hooks before_prompt_build  (new)" in asked.err
    assert "allowPromptInjection" in asked.err
    assert retinue("plugins", "update", "my-desk", "--yes", "--json").data["version"] == "0.2.0"
    assert retinue("plugins", "remove", "my-desk").code == 0
    assert "my-desk" not in states(retinue)
    assert [each for each in (home / "plugins").iterdir() if not each.name.startswith(".")] == []
    assert "Installed: none" in retinue("plugins", "remove", "my-desk").err


@pytest.mark.slow
def test_a_wheel_a_git_url_and_a_package_of_the_index_are_installed(
    desk: Path, retinue: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "index"
    wheels.mkdir()
    wheel = write_wheel(wheels)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    data = retinue("plugins", "install", str(wheel), "--yes", "--json").data
    assert (data["id"], data["version"], data["state"]) == ("sample-desk", "1.2.0", "on")
    assert "tools desk" in data["registers"]
    assert retinue("plugins", "remove", "sample-desk").code == 0
    assert retinue("plugins", "install", "sample-desk", "--yes", "--json").data["state"] == "on"
    assert retinue("plugins", "update", "sample-desk", "--yes").code == 0
    git = ["git", "-C", str(desk), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    cloned = retinue("plugins", "install", f"file://{desk}", "--yes", "--json")
    assert cloned.data["state"] == "on", cloned.err
    assert states(retinue)["my-desk"] == "on"
    assert "pip failed" in retinue("plugins", "install", "no-such-plugin", "--yes").err


def test_what_is_no_plugin_changes_nothing(retinue: RunCommand, tmp_path: Path, home: Path, desk: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no manifest" in retinue("plugins", "install", str(tmp_path / "empty"), "--yes").err
    (tmp_path / "broken.whl").write_text("no archive")
    assert "is not a wheel" in retinue("plugins", "install", str(tmp_path / "broken.whl"), "--yes").err
    assert "is not a plugin" in retinue("plugins", "install", "/no/such/folder", "--yes").err
    assert "git failed" in retinue("plugins", "install", "file:///no/such/repository", "--yes").err
    (desk / "my_desk" / "passwords").symlink_to("/etc/passwd")
    assert "a link to a place outside" in retinue("plugins", "install", str(desk), "--yes").err
    assert [*(home / "plugins").glob("*")] == []


def test_the_plugin_with_the_own_tools_cannot_be_disabled(retinue: RunCommand) -> None:
    refused = retinue("plugins", "disable", "retinue")
    assert refused.code == 2
    assert "always on" in refused.err
