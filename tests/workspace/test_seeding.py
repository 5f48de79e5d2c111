"""A new workspace, and the end of its first conversation."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retinue.core.text import estimate_tokens
from retinue.storage.files import Root
from retinue.workspace.seeding import SEEDED_FILES, seed_workspace
from retinue.workspace.settings import WorkspaceSettings
from retinue.workspace.state import (
    STATE_FILE,
    FirstRunState,
    WorkspaceState,
    first_run_state,
    judge_first_run,
    load_state,
    load_template,
    save_state,
)

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
DEFAULTS = WorkspaceSettings()
ALL = (*SEEDED_FILES, "BOOTSTRAP.md")


def state_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / STATE_FILE).read_text())
    return found


def ritual_of(path: Path) -> FirstRunState:
    with Root.open(path) as root:
        return first_run_state(root)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def test_a_new_workspace_has_every_file_and_a_history(path: Path) -> None:
    report = seed_workspace(path, DEFAULTS, NOW)
    assert report.created == ALL
    assert report.kept == ()
    assert report.notes == ()
    assert report.git_initialised
    assert (path / ".git").is_dir()
    assert (path / "SOUL.md").read_text() == load_template("SOUL.md")
    assert not (path / "MEMORY.md").exists()
    assert state_of(path) == {
        "version": 1,
        "bootstrapSeededAt": "2026-01-31T12:30:00+00:00",
        "setupCompletedAt": None,
        "createdBy": "retinue",
        "folder": path.stat().st_ino,
    }


def test_seeding_again_changes_nothing(path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if ".git" not in file.parts}
    report = seed_workspace(path, DEFAULTS, LATER)
    assert report.created == ()
    assert report.kept == SEEDED_FILES
    assert not report.git_initialised
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*") if ".git" not in file.parts} == before


def test_what_is_there_is_never_overwritten(path: Path, tmp_path: Path) -> None:
    path.mkdir()
    (path / "AGENTS.md").write_text("mine")
    (path / "SOUL.md").symlink_to(tmp_path / "nowhere.md")
    (path / "TOOLS.md").mkdir()
    report = seed_workspace(path, DEFAULTS, NOW)
    assert report.kept == ("AGENTS.md", "SOUL.md", "TOOLS.md")
    assert report.created == ("IDENTITY.md", "USER.md", "HEARTBEAT.md")
    assert (path / "AGENTS.md").read_text() == "mine"
    assert not (tmp_path / "nowhere.md").exists()


def test_another_spelling_is_kept_and_told(path: Path) -> None:
    path.mkdir()
    (path / "Soul.md").write_text("mine")
    report = seed_workspace(path, DEFAULTS, NOW)
    assert "SOUL.md" in report.kept
    assert any("Soul.md" in note for note in report.notes)
    assert not (path / "SOUL.md").exists()


@pytest.mark.parametrize("sign", ["AGENTS.md", "MEMORY.md", "memory/", "skills/", ".git/"])
def test_a_lived_in_folder_gets_no_ritual_and_no_history(path: Path, sign: str) -> None:
    path.mkdir()
    if sign.endswith("/"):
        (path / sign).mkdir()
    else:
        (path / sign).write_text("x")
    report = seed_workspace(path, DEFAULTS, NOW)
    assert "BOOTSTRAP.md" not in report.created
    assert not report.git_initialised
    assert state_of(path)["createdBy"] is None if (path / STATE_FILE).exists() else True


def test_a_folder_with_other_things_is_seeded_but_not_taken_for_ours(path: Path) -> None:
    path.mkdir()
    (path / "README.md").write_text("a project")
    assert seed_workspace(path, DEFAULTS, NOW).created == ALL
    with Root.open(path) as root:
        assert not load_state(root).was_made_here(root)


def test_a_copied_state_file_does_not_make_a_folder_ours(path: Path, tmp_path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    with Root.open(path) as root:
        assert load_state(root).was_made_here(root)
    shutil.copytree(path, tmp_path / "clone")
    with Root.open(tmp_path / "clone") as clone:
        assert not load_state(clone).was_made_here(clone)


def test_unwanted_files_are_not_made(path: Path) -> None:
    settings = WorkspaceSettings(skip_optional_bootstrap_files=["SOUL.md", "HEARTBEAT.md"])
    assert seed_workspace(path, settings, NOW).created == (
        "AGENTS.md",
        "IDENTITY.md",
        "USER.md",
        "TOOLS.md",
        "BOOTSTRAP.md",
    )


def test_skipping_bootstrap_makes_only_the_folder(path: Path) -> None:
    report = seed_workspace(path, WorkspaceSettings(skip_bootstrap=True), NOW)
    assert report.created == ()
    assert [file.name for file in path.iterdir()] == [".retinue"]
    assert seed_workspace(path, DEFAULTS, NOW).created == ALL


@pytest.mark.parametrize("git", ["missing", "failing"])
def test_without_git_the_workspace_works_all_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if git == "failing":
        (programs / "git").write_text("#!/bin/sh\nexit 3\n")
        (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    report = seed_workspace(path, DEFAULTS, NOW)
    assert report.created == ALL
    assert not report.git_initialised
    assert len(report.notes) == 1
    assert "no history" in report.notes[0]


def test_git_variables_do_not_move_the_repository(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    seed_workspace(path, DEFAULTS, NOW)
    assert (path / ".git").is_dir()
    assert not (tmp_path / "elsewhere").exists()


def test_deleting_the_file_completes_the_ritual(path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    assert ritual_of(path) is FirstRunState.PENDING
    (path / "BOOTSTRAP.md").unlink()
    assert ritual_of(path) is FirstRunState.COMPLETE
    seed_workspace(path, DEFAULTS, LATER)
    assert state_of(path)["setupCompletedAt"] == "2026-02-01T12:30:00+00:00"
    assert not (path / "BOOTSTRAP.md").exists()


def test_after_setup_only_the_essential_file_comes_back(path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    (path / "BOOTSTRAP.md").unlink()
    seed_workspace(path, DEFAULTS, LATER)
    for name in SEEDED_FILES:
        (path / name).unlink()
    assert seed_workspace(path, DEFAULTS, LATER).created == ("AGENTS.md",)


def test_a_filled_profile_makes_the_file_a_leftover(path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    (path / "IDENTITY.md").write_text("- **Name:** Ada\n")
    assert ritual_of(path) is FirstRunState.PENDING
    (path / "USER.md").write_text("- **Name:** Charles\n")
    assert ritual_of(path) is FirstRunState.LEFTOVER
    seed_workspace(path, DEFAULTS, LATER)
    assert state_of(path)["setupCompletedAt"]
    (path / "USER.md").write_text(load_template("USER.md"))
    assert ritual_of(path) is FirstRunState.LEFTOVER


def test_a_profile_that_only_changed_in_white_space_is_still_the_template(path: Path) -> None:
    seed_workspace(path, DEFAULTS, NOW)
    for name in ("IDENTITY.md", "USER.md"):
        (path / name).write_bytes(load_template(name).replace("\n", "\r\n").encode() + b"\n\n")
    assert ritual_of(path) is FirstRunState.PENDING


def test_a_ritual_without_profile_files_lasts_until_the_file_is_deleted(path: Path) -> None:
    seed_workspace(path, WorkspaceSettings(skip_optional_bootstrap_files=["IDENTITY.md", "USER.md"]), NOW)
    assert ritual_of(path) is FirstRunState.PENDING


@pytest.mark.parametrize(
    ("present", "completed", "filled", "expected"),
    [
        (False, False, False, FirstRunState.COMPLETE),
        (False, True, True, FirstRunState.COMPLETE),
        (True, False, False, FirstRunState.PENDING),
        (True, True, False, FirstRunState.LEFTOVER),
        (True, False, True, FirstRunState.LEFTOVER),
    ],
)
def test_judging_the_ritual(present: bool, completed: bool, filled: bool, expected: FirstRunState) -> None:
    assert judge_first_run(file_present=present, completed=completed, profile_filled=filled) is expected


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"createdBy": 3, "folder": "x"}', b"\xff", b"[" * 60_000])
def test_a_broken_state_file_is_an_empty_state(root: Root, broken: bytes) -> None:
    root.write(STATE_FILE, broken)
    assert load_state(root) == WorkspaceState()
    save_state(root, WorkspaceState(bootstrap_seeded_at="then"))
    assert load_state(root) == WorkspaceState(bootstrap_seeded_at="then")


def test_a_ritual_file_that_is_no_file_counts_as_there(root: Root) -> None:
    os.mkfifo(root.path / "BOOTSTRAP.md")
    assert first_run_state(root) is FirstRunState.PENDING


@pytest.mark.parametrize("name", ALL)
def test_templates_are_stripped_of_front_matter(name: str) -> None:
    text = load_template(name)
    assert not text.startswith("---")
    assert "summary:" not in text
    assert text.endswith("\n")


def test_the_templates_cost_little() -> None:
    costs = {name: estimate_tokens(load_template(name)) for name in ALL if name != "HEARTBEAT.md"}
    assert sum(costs.values()) <= 1_100
    assert costs["AGENTS.md"] <= 450


def test_the_instructions_say_what_the_runtime_relies_on() -> None:
    text = load_template("AGENTS.md")
    for needle in (
        "## Session Startup",
        "## Red Lines",
        "BOOTSTRAP.md",
        "memory/YYYY-MM-DD.md",
        "MEMORY.md",
        "HEARTBEAT.md",
    ):
        assert needle in text


def test_an_unfilled_heartbeat_has_nothing_but_a_comment() -> None:
    text = load_template("HEARTBEAT.md").strip()
    assert text.startswith("<!--")
    assert text.endswith("-->")
    assert text.count("-->") == 1
