"""What skills need: exact commands, nothing that is an option or a shell command, and runs only on consent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run
from retinue.core.approval import IN_COMMAND
from retinue.core.errors import SkillError
from retinue.skills.dependencies import InstallPlan, plan_installs, store_download
from retinue.skills.skill import SkillTier, parse_skill
from tests.skills.test_integrity import pack
from tests.workspaces import begin_workspace


def manifest(*ways: dict[str, Any], bins: str = "no-such-program") -> bytes:
    metadata = json.dumps({"retinue": {"requires": {"bins": [bins]}, "install": list(ways)}})
    return f"---\nname: demo\ndescription: Does a thing.\nmetadata: {metadata}\n---\n".encode()


def plans(*ways: dict[str, Any]) -> tuple[InstallPlan, ...]:
    skill = parse_skill(manifest(*ways), Path("/x/demo/SKILL.md"), SkillTier.WORKSPACE)
    return plan_installs(skill, "linux", lambda program: True)


@pytest.mark.parametrize(
    ("way", "command"),
    [
        ({"kind": "brew", "formula": "owner/tap/jq"}, "brew install owner/tap/jq"),
        ({"kind": "npm", "package": "@scope/tool@1.2"}, "npm install --global --ignore-scripts @scope/tool@1.2"),
        ({"kind": "uv", "package": "ruff==0.11"}, "uv tool install ruff==0.11"),
        ({"kind": "pip", "package": "httpx"}, "python3 -m pip install --user httpx"),
        ({"kind": "go", "module": "github.com/a/b"}, "go install github.com/a/b@latest"),
        ({"kind": "cargo", "package": "ripgrep"}, "cargo install ripgrep"),
    ],
)
def test_each_kind_has_an_exact_command(way: dict[str, Any], command: str) -> None:
    (plan,) = plans(way)
    assert (plan.text, plan.problem) == (command, "")


@pytest.mark.parametrize(
    "name",
    [
        "--index-url=x",
        "-e.",
        "a;b",
        "a b",
        "$(id)",
        "`id`",
        "../x",
        "https://e.example/x.tgz",
        "a|b",
        "a\nb",
        "",
        "x&&y",
    ],
)
def test_names_that_are_more_than_names_are_refused(name: str) -> None:
    (plan,) = plans({"kind": "pip", "package": name})
    assert plan.problem
    assert not plan.command


def test_a_download_needs_https_and_a_checksum(tmp_path: Path) -> None:
    data = pack({"bin/tool": b"#!/bin/sh\n", "README": b"x"}, mode=0o100755)
    digest = hashlib.sha256(data).hexdigest()
    good, plain, unchecked = plans(
        {"kind": "download", "url": "https://e.example/tool.zip", "sha256": digest},
        {"kind": "download", "url": "http://e.example/tool.zip", "sha256": digest},
        {"kind": "download", "url": "https://e.example/tool.zip"},
    )
    assert not good.problem
    assert plain.problem == "its address is not https"
    assert "no sha256" in unchecked.problem
    place = store_download(good, data, tmp_path / "tools")
    assert (place / "bin/tool").stat().st_mode & 0o777 == 0o700
    with pytest.raises(SkillError, match="not the one that the skill names"):
        store_download(good, data + b"x", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_command_runs_only_on_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_workspace(tmp_path / "home/workspace")
    folder = tmp_path / "home/workspace/skills/demo"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(manifest({"kind": "cargo", "package": "ripgrep", "id": "rg"}))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "cargo").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n')
    (programs / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))

    def ask(*arguments: str, code: int = 0) -> Any:
        assert run(["skills", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    offered = next(each for each in ask("check")["install"] if each["skill"] == "demo")
    assert offered["ways"][0]["command"] == "cargo install ripgrep"
    assert ask("dependencies", "demo")["ran"] is None
    assert not (tmp_path / "ran").exists()
    assert ask("dependencies", "demo", "--id", "other", code=2)["error"]["message"].endswith("It has: rg.")
    assert ask("dependencies", "demo", "--yes")["code"] == 0
    assert (tmp_path / "ran").read_text() == "install ripgrep\n"
    monkeypatch.setenv(IN_COMMAND, "1")
    assert "Do it yourself" in ask("dependencies", "demo", "--yes", code=2)["error"]["message"]
