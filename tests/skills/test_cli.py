"""`retinue skills`, as people run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run
from tests.skills.builders import write_skill
from tests.workspaces import begin_workspace

Ask = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a workspace and no skills but the bundled ones, those switched off."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    begin_workspace(tmp_path / "home/workspace")
    configure(tmp_path / "home", {"skills": {"allowBundled": []}})
    return tmp_path / "home"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*arguments: str, code: int = 0) -> Any:
        assert run(["skills", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return ask


def configure(home: Path, config: dict[str, Any]) -> None:
    (home / "retinue.json").write_text(json.dumps(config))


def bare(skills: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [skill for skill in skills if skill["tier"] != "bundled"]


def test_list(home: Path, ask: Ask) -> None:
    file = write_skill(home / "workspace/skills/github")
    write_skill(home / "skills/other", more="metadata: {openclaw: {requires: {bins: [no-such-program]}}}\n")
    assert bare(ask("list")) == [
        {
            "name": "github",
            "description": "Does a thing.",
            "emoji": None,
            "tier": "workspace",
            "location": str(file),
            "version": ask("info", "github")["version"],
            "eligible": True,
            "reasons": [],
        },
        {
            "name": "other",
            "description": "Does a thing.",
            "emoji": None,
            "tier": "managed",
            "location": str(home / "skills/other/SKILL.md"),
            "version": ask("info", "other")["version"],
            "eligible": False,
            "reasons": ["needs the program `no-such-program`, not on PATH"],
        },
    ]
    assert [skill["name"] for skill in ask("list", "--eligible")] == ["github"]


def test_list_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_skill(home / "workspace/skills/github", description="word " * 40)
    assert run(["skills", "list", "--eligible"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["skill", "from", "state", "description"]
    assert row.startswith("github  workspace  ready  word word")
    assert row.endswith("…")


def test_the_agents_list_of_skills_is_honoured(home: Path, ask: Ask) -> None:
    for name in ("a", "b"):
        write_skill(home / "workspace/skills" / name)
    (home / "workspace-ops").mkdir()
    write_skill(home / "skills/b")
    configure(home, {"agents": {"list": [{"id": "main", "default": True, "skills": ["b"]}, {"id": "ops"}]}})
    states = {skill["name"]: skill["eligible"] for skill in bare(ask("list"))}
    assert states == {"a": False, "b": True}
    assert [skill["name"] for skill in bare(ask("list", "--agent", "ops"))] == ["b"]


def test_settings_are_honoured(home: Path, ask: Ask) -> None:
    for name in ("a", "b"):
        write_skill(home / "workspace/skills" / name)
    write_skill(home.parent / "mine/c", more="metadata: {openclaw: {requires: {config: [messages.ackReaction]}}}\n")
    config: dict[str, Any] = {"skills": {"entries": {"a": {"enabled": False}}, "load": {"extraDirs": ["~/mine"]}}}
    configure(home, config)
    states = {skill["name"]: skill["reasons"] for skill in bare(ask("list"))}
    assert states == {
        "a": ["switched off by `skills.entries.a.enabled`"],
        "b": [],
        "c": ["needs the setting `messages.ackReaction`, not set or switched off"],
    }
    configure(home, config | {"messages": {"ackReaction": "👀"}})
    assert ask("info", "c")["eligible"]


def test_info(home: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    more = (
        "homepage: https://cli.github.com\nlicense: MIT\nmetadata: {openclaw: {skillKey: gh, emoji: 🐙, "
        "requires: {bins: [sh]}, install: [{kind: brew, formula: gh, bins: [gh]}]}}\n"
    )
    write_skill(home / "workspace/skills/github", more=more)
    shown = ask("info", "GitHub")
    assert (shown["homepage"], shown["license"], shown["emoji"]) == ("https://cli.github.com", "MIT", "🐙")
    assert shown["bins"] == ["sh"]
    assert [(way["kind"], way["target"], way["bins"]) for way in shown["install"]] == [("brew", "gh", ["gh"])]
    assert ask("info", "gh") == shown
    assert run(["skills", "info", "github"]) == 0
    text = capsys.readouterr().out
    assert "install          brew gh" in text
    assert "any bins" not in text, "what a skill does not say is left out"


def test_info_about_a_skill_that_is_not_there(home: Path, ask: Ask) -> None:
    write_skill(home / "workspace/skills/github")
    assert "Did you mean 'github'?" in ask("info", "gihub", code=2)["error"]["message"]
    assert "`retinue skills list`" in ask("info", "zzzzzz", code=2)["error"]["message"]


def test_a_skill_named_for_this_look(home: Path, ask: Ask, tmp_path: Path) -> None:
    write_skill(home / "workspace/skills/github")
    write_skill(tmp_path / "elsewhere/github", description="Mine.")
    shown = ask("info", "github", "--skill", str(tmp_path / "elsewhere/github/SKILL.md"))
    assert (shown["description"], shown["tier"]) == ("Mine.", "explicit")
    assert ask("check", "--skill", str(tmp_path / "nothing"))["problems"] == [
        {"path": str(tmp_path / "nothing"), "message": "There is no such folder."}
    ]


def test_check(home: Path, ask: Ask, tmp_path: Path) -> None:
    write_skill(home / "workspace/skills/github")
    hidden = write_skill(home / "skills/github")
    (home / "workspace/skills/bad").mkdir()
    (home / "workspace/skills/bad/SKILL.md").write_text("nothing")
    for name in ("a", "b"):
        write_skill(tmp_path / "mine" / name)
    skills = {"allowBundled": [], "load": {"extraDirs": ["~/mine"]}, "limits": {"maxSkillsLoadedPerSource": 1}}
    configure(home, {"skills": skills})
    report = ask("check")
    assert [skill["name"] for skill in bare(report["skills"])] == ["a", "github"]
    assert [problem["path"] for problem in report["problems"]] == [str(home / "workspace/skills/bad/SKILL.md")]
    assert [(item["location"], item["byTier"]) for item in report["shadowed"]] == [(str(hidden), "workspace")]
    assert str(tmp_path / "mine") in [limit["path"] for limit in report["limits"]]
    assert report["prompt"]["listed"] == 2
    assert ask("check", "--strict", code=1) == report


def test_check_tells_what_the_prompt_leaves_out(home: Path, ask: Ask) -> None:
    for name in ("a", "b", "c"):
        write_skill(home / "workspace/skills" / name)
    configure(home, {"skills": {"allowBundled": [], "limits": {"maxSkillsInPrompt": 1}}})
    prompt = ask("check", "--strict", code=1)["prompt"]
    assert (prompt["listed"], prompt["omitted"]) == (1, ["b", "c"])
    assert "1 of 3 skills" in prompt["note"]


def test_check_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_skill(home / "workspace/skills/github")
    write_skill(home / "skills/GITHUB")
    (home / "workspace/skills/bad").mkdir()
    (home / "workspace/skills/bad/SKILL.md").write_text("---\nname: x\n---\n")
    assert run(["skills", "check"]) == 0
    text = capsys.readouterr().out
    titles = [line.rsplit(" (", 1)[0] for line in text.splitlines() if line and not line.startswith(" ")]
    assert titles == ["Ready", "Off", "Could not be read", "Hidden by another of the same name"]
    assert "bundled, and not listed in `skills.allowBundled`" in text
    assert "It has no description." in text
    assert f"by {home / 'workspace/skills/github/SKILL.md'}" in text


def test_a_clean_home_passes_the_strict_check(home: Path, ask: Ask) -> None:
    write_skill(home / "workspace/skills/github")
    assert not ask("check", "--strict")["problems"]
