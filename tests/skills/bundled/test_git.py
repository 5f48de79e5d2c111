"""The state of Git repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, name: str, subject: str) -> None:
    (folder / name).write_text(subject)
    git(folder, "add", name)
    git(folder, "commit", "-qm", subject)


@pytest.fixture
def repository(workspace: Workspace) -> Path:
    folder = workspace.folder / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "a.txt", "parser: read files")
    git(folder, "tag", "v1.0")
    return folder


@pytest.fixture
def repos(workspace: Workspace) -> Script:
    return script("git", "repos.py", workspace)


def test_what_is_not_committed_or_pushed_is_counted(repos: Script, repository: Path, workspace: Workspace) -> None:
    git(workspace.folder, "clone", "-q", "project", "clone")
    clone = workspace.folder / "clone"
    commit(clone, "b.txt", "more")
    (clone / "a.txt").write_text("changed")
    (clone / "new.txt").write_text("new")
    (clone / "staged.txt").write_text("staged")
    git(clone, "add", "staged.txt")
    state, origin = repos.json("state", ".")
    assert (state["branch"], state["upstream"], state["ahead"], state["behind"]) == ("main", "origin/main", 1, 0)
    assert (state["staged"], state["changed"], state["untracked"], state["stashes"]) == (1, 1, 1, 0)
    assert repos.run("state", "project") == f"{origin['path']}  main  no upstream\n"
    assert repos.json("state", "clone")[0]["path"] == "clone"


def test_an_unfinished_merge_is_named(repos: Script, repository: Path) -> None:
    git(repository, "switch", "-qc", "other")
    commit(repository, "a.txt", "one")
    git(repository, "switch", "-q", "main")
    commit(repository, "a.txt", "two")
    subprocess.run(["git", *WHO, "merge", "other"], cwd=repository, check=False, capture_output=True)
    (state,) = repos.json("state", "project")
    assert (state["conflicts"], state["unfinished"]) == (1, ["merge"])


def test_merged_branches_are_found(repos: Script, repository: Path) -> None:
    git(repository, "branch", "done")
    git(repository, "switch", "-qc", "open")
    commit(repository, "b.txt", "half")
    rows = {row["branch"]: row for row in repos.json("branches", "project", "--base", "main")}
    assert {name: (row["merged"], row["current"]) for name, row in rows.items()} == {
        "main": (True, False),
        "done": (True, False),
        "open": (False, True),
    }


def test_changes_since_a_tag_come_by_area(repos: Script, repository: Path) -> None:
    for number, subject in enumerate(("web: show more", "feat(parser)!: drop XML", "A note", "web: faster")):
        commit(repository, f"{number}.txt", subject)
    printed = repos.run("changes", "project").splitlines()
    assert [line.rpartition(" (")[0] or line for line in printed] == [
        "## parser",
        "- BREAKING: drop XML",
        "## web",
        "- show more",
        "- faster",
        "## other",
        "- A note",
    ]
    assert repos.run("changes", "project", "--since", "HEAD") == "Nothing.\n"


def test_a_repository_cannot_run_programs(repos: Script, repository: Path, workspace: Workspace) -> None:
    git(repository, "config", "core.fsmonitor", f"touch {workspace.folder}/ran")
    repos.run("state", "project")
    assert not (workspace.folder / "ran").exists()


def test_bad_input_is_refused(repos: Script, repository: Path, workspace: Workspace) -> None:
    (workspace.folder / "empty").mkdir()
    assert "there is no folder nowhere" in repos.fail("state", "nowhere")
    assert "no repository" in repos.fail("state", "empty")
    assert "nothing-such" in repos.fail("changes", "project", "--since", "nothing-such")
    assert "not a commit" in repos.fail("changes", "project", "--since=--output=x")
