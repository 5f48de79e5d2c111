"""`retinue init` and `retinue workspace`: make, list, inspect; never overwrite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand


def test_init_makes_a_private_home_and_a_workspace(retinue: RunCommand, home: Path) -> None:
    made = retinue("init", "--yes", "--json").data
    assert made["workspace"] == str(home / "workspace")
    assert "AGENTS.md" in made["created"]
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "workspace" / ".git").is_dir()


def test_the_way_to_a_missing_workspace_names_its_agent(retinue: RunCommand, home: Path) -> None:
    retinue("config", "set", "agents.list", '[{id: "main"}, {id: "work"}]')
    assert "Run `retinue init` to make it" in retinue("workspace", "status").err
    assert "Run `retinue init --agent work` to make it" in retinue("workspace", "status", "--agent", "work").err
    assert retinue("init", "--agent", "work").code == 0
    assert retinue("workspace", "status", "--agent", "work").code == 0


def test_init_again_changes_nothing(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    (home / "workspace" / "SOUL.md").write_text("Mine.")
    again = retinue("init", "--yes", "--json").data
    assert again["created"] == []
    assert (home / "workspace" / "SOUL.md").read_text() == "Mine."


def test_list_shows_every_agent_with_its_name_and_emoji(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    (home / "retinue.json").write_text('{agents: {list: [{id: "main", default: true}, {id: "work", name: "Clerk"}]}}')
    retinue("init", "--yes")
    (home / "workspace" / "IDENTITY.md").write_text("---\nname: Ada\nemoji: 🦉\navatar: ./owl.png\n---\n")
    rows = retinue("workspace", "list", "--json").data
    assert [(r["agent"], r["name"], r["emoji"], r["exists"]) for r in rows] == [
        ("main", "Ada", "🦉", True),
        ("work", None, None, False),
    ]
    assert rows[1]["workspace"] == str(home / "workspace-work")
    assert "Ada" in retinue("workspace", "list").out


def test_seed_makes_another_agents_folder(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    (home / "retinue.json").write_text('{agents: {list: [{id: "main"}, {id: "work", name: "Clerk"}]}}')
    assert retinue("workspace", "seed", "--agent", "work").code == 0
    assert (home / "workspace-work" / "AGENTS.md").is_file()
    rows = retinue("workspace", "list", "--json").data
    assert rows[1]["name"] == "Clerk"


def test_status_shows_problems_in_words(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    workspace = home / "workspace"
    (workspace / "SOUL.md").write_bytes(b"\xff\xfe bad")
    (workspace / "TOOLS.md").unlink()
    (workspace / "USER.md").unlink()
    (workspace / "USER.md").symlink_to("/etc/passwd")
    found = retinue("workspace", "status", "--json").data
    states = {row["name"]: row["status"] for row in found["files"]}
    assert states["TOOLS.md"] == "missing"
    assert states["USER.md"] == "unusable"
    assert any("UTF-8" in problem for problem in found["problems"])
    assert found["ritual"] == "pending"


def test_profile_has_a_home_of_its_own(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETINUE_HOME")
    made = retinue("init", "--yes", "--profile", "test", "--json").data
    assert made["home"].endswith("/.retinue-test")


def test_home_option_works_on_either_side_of_the_command(retinue: RunCommand, tmp_path: Path) -> None:
    one = retinue("--home", str(tmp_path / "x"), "init", "--yes", "--json").data
    two = retinue("init", "--yes", "--json", "--home", str(tmp_path / "y")).data
    assert (one["home"], two["home"]) == (str(tmp_path / "x"), str(tmp_path / "y"))


def test_a_home_that_cannot_be_made_is_explained(retinue: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = retinue("init", "--yes", "--home", str(tmp_path / "file" / "home"))
    assert ran.code == 1
    assert str(tmp_path / "file") in ran.err


def test_trust_is_given_by_its_owner_and_taken_back(retinue: RunCommand, home: Path) -> None:
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "README.md").write_text("somebody's project")
    assert "retinue workspace trust" in retinue("init", "--yes").err
    assert "not trusted" in retinue("workspace", "list").out
    assert retinue("workspace", "status", "--json").data["trusted"] is False
    assert retinue("workspace", "trust", "--json").data["trusted"] is True
    assert retinue("workspace", "status", "--json").data["trusted"] is True
    assert "workspace_trust" in retinue("security", "log").out
    assert retinue("workspace", "trust", "--revoke", "--json").data["trusted"] is False
    assert "not trusted" in retinue("workspace", "list").out


def test_an_agents_command_cannot_vouch_and_a_made_folder_needs_nobody(
    retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retinue("init", "--yes")
    assert "always trusted" in retinue("workspace", "trust", "--revoke").err
    monkeypatch.setenv("RETINUE_SHELL", "exec")
    refused = retinue("workspace", "trust")
    assert refused.code != 0
    assert "Do it yourself" in refused.err
