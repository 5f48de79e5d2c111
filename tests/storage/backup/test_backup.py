"""Backups of a home: incremental, consistent while it is in use, verified, and restored completely or not at all."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retinue.core.errors import UsageError
from retinue.storage.backup.create import AgentScope, CreatedBackup, create_backup
from retinue.storage.backup.repository import Repository
from retinue.storage.backup.restore import restore_in_place, restore_new
from retinue.storage.home_paths import HomePaths
from retinue.storage.object_store import BackupFailed
from retinue.storage.process_locks import AlreadyRunning, InstanceLock
from tests.killing import KILLS

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    sessions = home / "agents" / "main" / "sessions"
    (sessions / "leases").mkdir(parents=True)
    (sessions / "leases" / "a.lease").touch()
    (sessions / "one.jsonl").write_text('{"type":"session"}\n{"type":"message"}\n')
    (home / "workspace" / "my-journal").mkdir(parents=True)
    (home / "workspace" / "my-journal" / "day.md").write_text("Notes.\n")
    (home / "workspace" / "latest").symlink_to("my-journal/day.md")
    (home / "workspace" / "run.sh").write_text("#!/bin/sh\n")
    (home / "workspace" / "run.sh").chmod(0o755)
    (home / "memory").mkdir()
    (home / "memory" / "main.sqlite").write_bytes(b"derived")
    (home / "retinue.json").write_text("{}")
    with closing(_connect(home)) as base:
        base.execute("CREATE TABLE jobs (number INTEGER)")
        base.commit()
    return home


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "backups")


def test_a_restored_home_equals_the_original(home: Path, repository: Repository, tmp_path: Path) -> None:
    done = _back_up(home, repository)
    restore_new(repository, done.id, tmp_path / "new")
    assert _files(tmp_path / "new") == _files(home)
    assert (tmp_path / "new" / "workspace" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "new" / "workspace" / "latest").readlink() == Path("my-journal/day.md")
    assert not (tmp_path / "new" / "memory").exists()
    assert {each.path for each in done.manifest.left_out} == {"memory", "agents/main/sessions/leases"}


def test_a_second_backup_stores_only_what_changed(home: Path, repository: Repository) -> None:
    first = _back_up(home, repository)
    assert first.new_objects == len(first.manifest.files)
    assert _back_up(home, repository, 1).new_objects == 0
    (home / "workspace" / "my-journal" / "day.md").write_text("Other notes.\n")
    third = _back_up(home, repository, 2)
    assert (third.new_objects, third.new_bytes) == (1, len("Other notes.\n"))
    assert repository.ids() == (first.id, repository.ids()[1], third.id)


def test_a_change_of_the_same_length_and_time_is_noticed(home: Path, repository: Repository, tmp_path: Path) -> None:
    file = home / "retinue.json"
    found = file.stat()
    _back_up(home, repository)
    file.write_text("[]")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    restore_new(repository, _back_up(home, repository, 1).id, tmp_path / "new")
    assert (tmp_path / "new" / "retinue.json").read_text() == "[]"


def test_changes_that_are_only_in_the_log_of_a_database_are_backed_up(
    home: Path, repository: Repository, tmp_path: Path
) -> None:
    with closing(_connect(home)) as base:
        _back_up(home, repository)
        base.execute("INSERT INTO jobs VALUES (7)")
        base.commit()
        done = _back_up(home, repository, 1)
        restore_new(repository, done.id, tmp_path / "new")
    with closing(_connect(tmp_path / "new")) as copy:
        assert copy.execute("SELECT number FROM jobs").fetchall() == [(7,)]


@pytest.mark.slow
def test_a_backup_during_writes_is_a_state_that_existed(home: Path, repository: Repository, tmp_path: Path) -> None:
    """Each step writes to the transcript first and then, in one transaction, two rows."""
    stop = threading.Event()
    transcript = home / "agents" / "main" / "sessions" / "one.jsonl"

    def write() -> None:
        with closing(_connect(home)) as base, transcript.open("ab", buffering=0) as lines:
            for number in range(100_000):
                lines.write(b'{"number":%d}\n' % number)
                base.executemany("INSERT INTO jobs VALUES (?)", [(number,), (number,)])
                base.commit()
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        names = [_back_up(home, repository, number).id for number in range(5)]
    finally:
        stop.set()
        writer.join()
    for name in names:
        restore_new(repository, name, tmp_path / name)
        with closing(_connect(tmp_path / name)) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = [number for (number,) in copy.execute("SELECT number FROM jobs ORDER BY rowid")]
        told = (tmp_path / name / "agents" / "main" / "sessions" / "one.jsonl").read_bytes()
        assert transcript.read_bytes().startswith(told)
        assert rows == sorted([*range(len(rows) // 2), *range(len(rows) // 2)])
        assert told.count(b"number") >= len(rows) // 2


def test_verify_finds_a_flipped_bit(home: Path, repository: Repository) -> None:
    done = _back_up(home, repository)
    assert repository.verify(repository.ids()) == ()
    entry = next(entry for entry in done.manifest.files if entry.path == "retinue.json")
    _flip(repository.objects.path_of(entry.sha256))
    (fault,) = repository.verify(repository.ids())
    assert (fault.snapshot, fault.path) == (done.id, "retinue.json")
    assert "is damaged" in fault.problem


def test_verify_finds_a_damaged_manifest_and_a_missing_object(home: Path, repository: Repository) -> None:
    first = _back_up(home, repository)
    second = _back_up(home, repository, 1)
    _flip(repository.path / "snapshots" / f"{first.id}.json")
    repository.objects.path_of(second.manifest.files[0].sha256).unlink()
    damaged, missing = repository.verify(repository.ids())
    assert "manifest" in damaged.problem
    assert "is missing" in missing.problem


def test_a_damaged_backup_is_not_restored(home: Path, repository: Repository, tmp_path: Path) -> None:
    done = _back_up(home, repository)
    before = _files(home)
    _flip(repository.objects.path_of(done.manifest.files[0].sha256))
    with pytest.raises(BackupFailed, match="is damaged"):
        restore_new(repository, done.id, tmp_path / "new")
    with pytest.raises(BackupFailed, match="is damaged"):
        restore_in_place(repository, done.id, home)
    assert _files(home) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", "home"]


def test_a_restore_in_place_moves_the_old_home_aside(home: Path, repository: Repository) -> None:
    done = _back_up(home, repository)
    before = _files(home)
    (home / "retinue.json").write_text("{broken")
    restored = restore_in_place(repository, done.id, home)
    assert _files(home) == before
    assert restored.moved_aside is not None
    assert (restored.moved_aside / "retinue.json").read_text() == "{broken"


def test_nothing_is_restored_while_a_gateway_runs_or_over_a_folder(home: Path, repository: Repository) -> None:
    done = _back_up(home, repository)
    before = _files(home)
    lock = InstanceLock(HomePaths(home))
    try:
        with pytest.raises(AlreadyRunning):
            restore_in_place(repository, done.id, home)
    finally:
        lock.release()
    with pytest.raises(UsageError, match="exists already"):
        restore_new(repository, done.id, home)
    assert _files(home) == before
    assert sorted(path.name for path in home.parent.iterdir()) == ["backups", "home"]


def test_prune_keeps_what_the_other_backups_need(home: Path, repository: Repository, tmp_path: Path) -> None:
    _back_up(home, repository)
    (home / "retinue.json").write_text("{} // new")
    second = _back_up(home, repository, 1)
    removed, freed = repository.prune(1)
    assert (len(removed), freed) == (1, len("{}"))
    assert repository.ids() == (second.id,)
    assert repository.verify(repository.ids()) == ()
    restore_new(repository, second.id, tmp_path / "new")
    assert _files(tmp_path / "new") == _files(home)


def test_backups_of_an_agent_do_not_displace_those_of_the_home(home: Path, repository: Repository) -> None:
    whole = [_back_up(home, repository, later).id for later in range(2)]
    scope = AgentScope("main", ("agents/main",), b"the settings")
    with repository.locked(exclusive=True):
        of_agent = [create_backup(home, repository, NOW + timedelta(seconds=later), scope) for later in (2, 3)]
    assert [made.new_objects for made in of_agent] == [1, 0], "the state of the agent is new, its files are not"
    assert repository.prune(1)[0] == (whole[0], of_agent[0].id)
    assert repository.ids() == (whole[1], of_agent[1].id)
    assert repository.verify(repository.ids()) == ()


def test_a_damaged_manifest_is_pruned_when_it_is_old(home: Path, repository: Repository) -> None:
    made = [_back_up(home, repository, later).id for later in range(3)]
    _flip(repository.path / "snapshots" / f"{made[0]}.json")
    assert repository.prune(2)[0] == (made[0],)
    _flip(repository.path / "snapshots" / f"{made[2]}.json")
    with pytest.raises(BackupFailed, match="damaged"):
        repository.prune(1)
    assert repository.ids() == tuple(made[1:])


def test_backups_inside_the_home_are_refused(home: Path) -> None:
    inside = Repository(home / "backups")
    with pytest.raises(BackupFailed, match="contain themselves"):
        create_backup(home, inside, NOW)


@pytest.mark.slow
def test_encrypted_backups_need_the_passphrase(home: Path, repository: Repository, tmp_path: Path) -> None:
    (home / "workspace" / "large.bin").write_bytes(os.urandom(2 * 1024**2 + 7))
    (home / "workspace" / "empty").touch()
    repository.unlock("correct horse", create=True)
    first = _back_up(home, repository)
    assert _back_up(home, repository, 1).new_objects == 0
    stored = b"".join(path.read_bytes() for path in repository.path.rglob("*") if path.is_file())
    assert b"Notes." not in stored
    assert b"day.md" not in stored
    assert first.manifest.files[0].sha256.encode() not in stored

    locked = Repository(repository.path)
    with pytest.raises(UsageError, match="encrypted"):
        locked.manifest(first.id)
    with pytest.raises(BackupFailed, match="encrypted"):
        _back_up(home, locked, 2)
    with pytest.raises(UsageError, match="wrong"):
        locked.unlock("battery staple")
    again = Repository(repository.path)
    again.unlock("correct horse")
    assert again.verify(again.ids()) == ()
    restore_new(again, first.id, tmp_path / "new")
    assert _files(tmp_path / "new") == _files(home)
    again.prune(1)
    assert again.verify(again.ids()) == ()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["flip", "shorten", "swap"])
def test_changed_encrypted_objects_are_found(home: Path, repository: Repository, change: str) -> None:
    (home / "workspace" / "large.bin").write_bytes(os.urandom(3 * 1024**2))
    repository.unlock("correct horse", create=True)
    done = _back_up(home, repository)
    entry = next(entry for entry in done.manifest.files if entry.path == "workspace/large.bin")
    path, frame = repository.objects.path_of(entry.sha256), 1024**2 + 28
    data = path.read_bytes()
    match change:
        case "flip":
            _flip(path)
        case "shorten":
            path.write_bytes(data[: 4 + 2 * frame])
        case "swap":
            path.write_bytes(data[:4] + data[4 + frame : 4 + 2 * frame] + data[4 : 4 + frame] + data[4 + 2 * frame :])
    (fault,) = repository.verify(repository.ids())
    assert "damaged" in fault.problem


def test_plain_backups_are_not_mixed_with_encrypted_ones(home: Path, repository: Repository) -> None:
    _back_up(home, repository)
    with pytest.raises(UsageError, match="not encrypted"):
        repository.unlock("late", create=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_backup_leaves_the_backups_that_were_complete(home: Path, repository: Repository, seed: int) -> None:
    first = _back_up(home, repository)
    _add_files(home)
    _run_and_kill(
        seed,
        home,
        repository,
        "from datetime import UTC, datetime",
        "create_backup(home, repository, datetime.now(UTC))",
    )
    assert repository.ids()[0] == first.id
    assert repository.verify(repository.ids()) == ()
    done = _back_up(home, repository, 86_400 * 3650)
    repository.prune(1)
    assert repository.verify((done.id,)) == ()
    assert not list((repository.path / "objects").glob(".retinue-*"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_restore_leaves_the_old_home_or_the_new_one(home: Path, repository: Repository, seed: int) -> None:
    _add_files(home)
    done = _back_up(home, repository)
    new = _files(home)
    (home / "retinue.json").write_text("{} // old")
    old = _files(home)
    _run_and_kill(seed, home, repository, "", f"restore_in_place(repository, {done.id!r}, home)")
    (home / "gateway.lock").unlink(missing_ok=True)
    assert _files(home) in (old, new)
    was_new = _files(home) == new
    restore_in_place(repository, done.id, home)
    assert _files(home) == new
    aside = [_files(path) for path in home.parent.glob("home.before-restore-*")]
    for each in aside:
        each.pop("gateway.lock", None)
    assert old in aside
    assert len(aside) == 1 + was_new
    assert not list(home.parent.glob(".home.restoring-*"))


def _run_and_kill(seed: int, home: Path, repository: Repository, imports: str, call: str) -> None:
    """Run a call in a process of its own, and kill it after a random number of system calls that change names."""
    program = f"""
import os, signal, sys
from pathlib import Path
{imports}
from retinue.storage.backup.create import create_backup
from retinue.storage.backup.repository import Repository
from retinue.storage.backup.restore import restore_in_place
left = int(sys.argv[3])
def count(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.chmod", "ctypes.dlsym"):
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
home, repository = Path(sys.argv[1]), Repository(Path(sys.argv[2]))
sys.addaudithook(count)
with repository.locked(exclusive=True):
    {call}
"""
    steps = random.Random(seed).randrange(1, 220)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(home), str(repository.path), str(steps)], check=False, timeout=120
    )
    assert ended.returncode in (0, -signal.SIGKILL)


def _add_files(home: Path) -> None:
    for number in range(30):
        (home / "workspace" / f"note-{number}.md").write_text(f"Note {number}\n")


def _back_up(home: Path, repository: Repository, later: int = 0) -> CreatedBackup:
    with repository.locked(exclusive=True):
        return create_backup(home, repository, NOW + timedelta(seconds=later))


def _connect(home: Path) -> sqlite3.Connection:
    base = sqlite3.connect(home / "state.sqlite")
    base.execute("PRAGMA journal_mode = WAL")
    return base


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _files(home: Path) -> dict[str, bytes]:
    """The content of everything that a backup contains; of the database its rows, since its pages may differ."""
    found: dict[str, bytes] = {}
    for path in home.rglob("*"):
        name = str(path.relative_to(home))
        if name.startswith(("memory", "agents/main/sessions/leases")) or not path.is_file():
            continue
        if path.name.startswith(("state.sqlite", "gateway.lock")):
            continue
        found[name] = path.read_bytes()
    with closing(sqlite3.connect(f"{(home / 'state.sqlite').as_uri()}?mode=ro", uri=True)) as base:
        found["state.sqlite"] = "\n".join(base.iterdump()).encode()
    return found
