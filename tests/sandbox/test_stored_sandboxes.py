"""What sandboxes leave on disk, and when it goes."""

from __future__ import annotations

import fcntl
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.sandboxes import Sandboxes, StoredSandbox, prune_reason, remove
from retinue.sandbox.settings import PruneSettings, SandboxSettings
from retinue.structs.decode import decode

NOW = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
MAIN = SessionKey.parse("agent:main:main")
OTHER = SessionKey.parse("agent:other:main")


class Hourglass:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Hourglass:
    return Hourglass()


@pytest.fixture
def sandboxes(tmp_path: Path, time: Hourglass) -> Sandboxes:
    settings = SandboxSettings(mode="all")
    return Sandboxes(tmp_path, lambda agent: settings, lambda agent: tmp_path / "workspace", time)


def use(sandboxes: Sandboxes, session: SessionKey) -> Path:
    confinement = sandboxes.confine(session)
    assert confinement is not None
    sandboxes.open(confinement, session)
    return confinement.own


def test_what_a_sandbox_keeps_is_for_the_owner_alone(sandboxes: Sandboxes) -> None:
    own = use(sandboxes, MAIN)
    assert {path.name for path in own.iterdir()} == {"work", "tmp", "home", "shm", "sandbox.json"}
    for path in (own, *own.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_drawing_a_sandbox_makes_nothing(sandboxes: Sandboxes, tmp_path: Path) -> None:
    sandboxes.confine(MAIN)
    assert list(tmp_path.iterdir()) == []


def test_using_a_sandbox_again_keeps_its_age(sandboxes: Sandboxes, time: Hourglass) -> None:
    use(sandboxes, MAIN)
    time.now += timedelta(hours=5)
    use(sandboxes, MAIN)
    [kept] = sandboxes.kept((AgentId("main"), AgentId("other")))
    assert (kept.made, kept.used) == (NOW, NOW + timedelta(hours=5))
    assert (kept.agent, kept.session) == ("main", "agent:main:main")


@pytest.mark.parametrize(
    ("rules", "idle", "age", "goes"),
    [
        ({}, timedelta(hours=23), timedelta(days=2), False),
        ({}, timedelta(hours=24), timedelta(days=2), True),
        ({}, timedelta(hours=2), timedelta(days=7), True),
        ({}, timedelta(minutes=59), timedelta(days=8), False),
        ({"idleHours": 0}, timedelta(days=6), timedelta(days=6), False),
        ({"idleHours": 0, "maxAgeDays": 0}, timedelta(days=600), timedelta(days=600), False),
    ],
)
def test_unused_and_old_sandboxes_go(rules: dict[str, Any], idle: timedelta, age: timedelta, goes: bool) -> None:
    kept = StoredSandbox("agent-main", Path("/nowhere"), "main", "agent:main:main", NOW - age, NOW - idle)
    assert (prune_reason(kept, decode(PruneSettings, rules), NOW) is not None) is goes


def test_pruning_takes_an_agents_own_and_leaves_the_others(sandboxes: Sandboxes, time: Hourglass) -> None:
    mine, others = use(sandboxes, MAIN), use(sandboxes, OTHER)
    (mine / "work/deep").mkdir()
    (mine / "work/deep/file").write_text("x")
    (mine / "work/link").symlink_to(others)
    time.now += timedelta(hours=30)
    [(gone, why)] = sandboxes.prune(AgentId("main"))
    assert (gone.name, why) == ("agent-main", "not used for 24 hours")
    assert not mine.exists()
    assert (others / "work").is_dir()


def test_a_sandbox_that_a_command_runs_in_stays(sandboxes: Sandboxes, time: Hourglass) -> None:
    own = use(sandboxes, MAIN)
    time.now += timedelta(hours=30)
    held = os.open(own / "sandbox.json", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert sandboxes.prune(AgentId("main")) == []
        assert own.is_dir()
    finally:
        os.close(held)
    assert len(sandboxes.prune(AgentId("main"))) == 1


def test_a_folder_that_is_no_sandbox_is_left_alone(sandboxes: Sandboxes, tmp_path: Path) -> None:
    stray = tmp_path / "sandboxes/notes"
    stray.mkdir(parents=True)
    (stray / "sandbox.json").write_text("[]")
    assert sandboxes.kept((AgentId("main"),)) == []


def test_removing_what_is_gone_already_is_fine(tmp_path: Path) -> None:
    assert remove(StoredSandbox("x", tmp_path / "x", "main", "agent:main:main", NOW, NOW))


def test_the_size_counts_files_and_follows_no_link(sandboxes: Sandboxes, tmp_path: Path) -> None:
    own = use(sandboxes, MAIN)
    before = sandboxes.kept((AgentId("main"),))[0].size
    (own / "work/file").write_bytes(bytes(1000))
    (tmp_path / "large").write_bytes(bytes(100_000))
    (own / "work/link").symlink_to(tmp_path / "large")
    assert 1000 <= sandboxes.kept((AgentId("main"),))[0].size - before < 2000
