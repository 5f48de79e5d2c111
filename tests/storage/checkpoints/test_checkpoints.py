"""What a turn changed in a workspace is undone and repeated; the person's repository is not touched."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retinue.core.errors import UsageError
from retinue.storage.checkpoints.store import CheckpointLimits, CheckpointStore, RestoredFiles
from tests.killing import KILLS, count_steps, kill_at

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SESSION = "agent:main:main"


@pytest.fixture(params=["folder", "repository"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "memory").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Be kind.\n")
    (folder / "memory" / "day.md").write_text("Bread.\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "big.js").write_text("//")
    if request.param == "repository":
        (folder / ".gitignore").write_text("build/\n*.md\n")
        git(folder, "init", "-q")
        git(folder, "add", "AGENTS.md", "-f")
        git(folder, "commit", "-q", "-m", "first")
        (folder / "staged.txt").write_text("staged\n")
        git(folder, "add", "staged.txt")
        git(folder, "stash", "push", "-q", "--include-untracked", "--", "staged.txt")
    return folder


@pytest.fixture
def store(workspace: Path, tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", workspace, CheckpointLimits())


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def turn(store: CheckpointStore, run: str, change: object, session: str = SESSION, at: datetime = NOW) -> object:
    assert callable(change)
    store.begin(run, session, at)
    change()
    return store.end(run, at)


def undo(store: CheckpointStore, session: str | None = None) -> RestoredFiles:
    return store.apply(store.next_undo(session), "undo", NOW)


def redo(store: CheckpointStore) -> RestoredFiles:
    return store.apply(store.next_redo(), "redo", NOW)


def content(folder: Path) -> dict[str, tuple[object, ...]]:
    return {
        str(path.relative_to(folder)): ("link", str(path.readlink()))
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink()) and ".git" not in path.parts and not path.name.startswith(".retinue-")
    }


def rewrite(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("Be rude.\n")
    (workspace / "memory" / "day.md").unlink()
    (workspace / "memory").rmdir()
    (workspace / "new" / "deep").mkdir(parents=True)
    (workspace / "new" / "deep" / "file.txt").write_text("x")
    (workspace / "run.sh").chmod(0o644)
    (workspace / "latest").symlink_to("AGENTS.md")


def test_a_turn_is_undone_and_repeated(workspace: Path, store: CheckpointStore) -> None:
    before = content(workspace)
    repository = _repository_state(workspace)
    turn(store, "one", lambda: rewrite(workspace))
    after = content(workspace)
    done = undo(store)
    assert (content(workspace), done.kept) == (before, {})
    assert sorted(done.paths) == ["AGENTS.md", "latest", "memory/day.md", "new/deep/file.txt", "run.sh"]
    assert not (workspace / "new").exists()
    with pytest.raises(UsageError, match="nothing to undo"):
        undo(store)
    redo(store)
    assert content(workspace) == after
    with pytest.raises(UsageError, match="nothing to redo"):
        redo(store)
    assert _repository_state(workspace) == repository


def test_several_turns_are_undone_in_order(workspace: Path, store: CheckpointStore) -> None:
    states = [content(workspace)]
    for number in range(3):
        turn(store, f"run-{number}", lambda number=number: (workspace / "AGENTS.md").write_text(f"{number}"))
        states.append(content(workspace))
    for state in (states[2], states[1], states[0]):
        undo(store)
        assert content(workspace) == state
    for state in states[1:]:
        redo(store)
        assert content(workspace) == state


def test_a_turn_that_changed_nothing_leaves_no_checkpoint(workspace: Path, store: CheckpointStore) -> None:
    assert turn(store, "one", lambda: None) is None
    assert turn(store, "two", lambda: (workspace / "AGENTS.md").touch()) is None
    assert store.history() == ()


def test_what_a_person_changed_since_stays(workspace: Path, store: CheckpointStore) -> None:
    turn(store, "one", lambda: rewrite(workspace))
    (workspace / "AGENTS.md").write_text("By hand.\n")
    done = undo(store)
    assert done.kept == {"AGENTS.md": "it was changed since"}
    assert (workspace / "AGENTS.md").read_text() == "By hand.\n"
    assert (workspace / "memory" / "day.md").read_text() == "Bread.\n"


def test_sessions_undo_their_own_turns(workspace: Path, store: CheckpointStore) -> None:
    turn(store, "one", lambda: (workspace / "a.txt").write_text("a"))
    turn(store, "two", lambda: (workspace / "b.txt").write_text("b"), session="agent:main:ideas")
    undo(store, SESSION)
    assert not (workspace / "a.txt").exists()
    assert (workspace / "b.txt").exists()


def test_old_and_large_checkpoints_are_removed(workspace: Path, tmp_path: Path) -> None:
    limits = CheckpointLimits(max_bytes=40_000, max_file_bytes=15_000, max_age=timedelta(days=1))
    store = CheckpointStore(tmp_path / "checkpoints", workspace, limits)
    turn(store, "old", lambda: (workspace / "a.txt").write_text("a"), at=NOW - timedelta(days=2))
    for number in range(8):
        turn(store, f"run-{number}", lambda number=number: (workspace / "a.txt").write_bytes(bytes([number]) * 10_000))
    assert [each.run for each in store.history()] == ["run-7", "run-6"]
    stored = sum(path.stat().st_size for path in (tmp_path / "checkpoints/objects").glob("??/*"))
    assert stored < 60_000
    turn(store, "large", lambda: (workspace / "a.txt").write_bytes(b"x" * 20_000))
    undo(store)
    assert (workspace / "a.txt").read_bytes() == bytes([7]) * 10_000
    assert redo(store).kept == {"a.txt": "its content was too large to keep"}


def test_a_hostile_repository_runs_nothing_and_leads_nowhere(
    workspace: Path, store: CheckpointStore, tmp_path: Path
) -> None:
    if not (workspace / ".git").is_dir():
        git(workspace, "init", "-q")
    mark = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.hooksPath", "filter.x.clean", "core.sshCommand", "diff.external"):
        git(workspace, "config", key, f"touch {mark}")
    (workspace / ".gitattributes").write_text("* filter=x text eol=crlf\n")
    (workspace / ".gitignore").write_text("*\n")
    (workspace / "windows.txt").write_bytes(b"a\r\nb\n")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (workspace / "link").symlink_to(secret)

    def attack() -> None:
        (workspace / "memory" / "day.md").unlink()
        (workspace / "memory").rmdir()
        (workspace / "memory").symlink_to(tmp_path)
        (workspace / "windows.txt").write_bytes(b"gone")

    turn(store, "one", attack)
    undo(store)
    assert not mark.exists()
    assert (workspace / "windows.txt").read_bytes() == b"a\r\nb\n"
    assert (workspace / "memory" / "day.md").read_text() == "Bread.\n"
    assert not (tmp_path / "day.md").exists()
    assert not any(path.read_bytes() == b"secret" for path in (tmp_path / "checkpoints/objects").glob("??/*"))


def test_copies_of_files_are_private_whatever_the_permissions_of_the_originals(
    workspace: Path, store: CheckpointStore, tmp_path: Path
) -> None:
    (workspace / "key.txt").write_text("secret")
    (workspace / "key.txt").chmod(0o666)
    before = os.umask(0)
    try:
        turn(store, "one", lambda: (workspace / "key.txt").write_text("another secret"))
        undo(store)
    finally:
        os.umask(before)
    kept = [tmp_path / "checkpoints", *(tmp_path / "checkpoints").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in kept if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o077 for path in kept if path.is_file()} == {0}


def test_files_of_nested_repositories_are_included(workspace: Path, store: CheckpointStore) -> None:
    nested = workspace / "project"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / ".gitignore").write_text("out/\n")
    (nested / "out").mkdir()
    turn(store, "one", lambda: [(nested / name).write_text("x") for name in ("main.py", "out/ignored")])
    assert [change.path for change in store.history()[0].changes] == ["project/main.py"]


@pytest.mark.slow
def test_a_killed_undo_is_completed(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", workspace, CheckpointLimits())
    before = content(workspace)
    turn(store, "one", lambda: rewrite(workspace))
    after = content(workspace)
    for name in ("workspace", "checkpoints"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}.saved", symlinks=True)
    steps = count_steps(lambda: undo(store))
    for seed in range(KILLS):
        for name in ("workspace", "checkpoints"):
            shutil.rmtree(tmp_path / name)
            shutil.copytree(tmp_path / f"{name}.saved", tmp_path / name, symlinks=True)
        kill_at(lambda: undo(store), random.Random(seed).randrange(1, steps))
        store.begin("next", SESSION, NOW)
        store.end("next", NOW)
        assert content(workspace) in (before, after)
        assert store.get(1).undone == (content(workspace) == before)


@pytest.mark.slow
def test_a_killed_turn_can_be_undone(workspace: Path, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", workspace, CheckpointLimits())
    before = content(workspace)

    def work() -> None:
        store.begin("one", SESSION, NOW)
        rewrite(workspace)
        os.kill(os.getpid(), 9)

    kill_at(work, 10**9)
    store.begin("two", SESSION, NOW)
    assert store.end("two", NOW) is None
    (interrupted,) = store.history()
    assert interrupted.interrupted
    undo(store)
    assert content(workspace) == before


def _repository_state(workspace: Path) -> tuple[str, ...]:
    if not (workspace / ".git").is_dir():
        return ()
    index = (workspace / ".git" / "index").read_bytes().hex()
    return index, git(workspace, "stash", "list"), git(workspace, "for-each-ref"), git(workspace, "rev-parse", "HEAD")
