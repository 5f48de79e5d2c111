"""What backups, imports and checkpoints cost; with `full` also 200 kills of each."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from bench.measure import PYTHON, RETINUE, Sheet, process_cost
from retinue.storage.backup.create import create_backup
from retinue.storage.backup.repository import Repository
from retinue.storage.backup.restore import restore_new
from retinue.storage.checkpoints.store import CheckpointLimits, CheckpointStore

MEGABYTES, SHORT_MEGABYTES = 1_000, 100
SESSIONS, SHORT_SESSIONS = 10_000, 1_000
REPEATED = 3
KILLS = 200
KILL_TESTS = (
    "tests/storage/backup/test_backup.py",
    "tests/storage/checkpoints/test_checkpoints.py",
    "tests/importing/test_interruption.py",
    "tests/updates/test_update.py",
)
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def run(*, full: bool) -> None:
    sheet = Sheet("backup")
    with tempfile.TemporaryDirectory() as place:
        _measure_backups(sheet, Path(place), MEGABYTES if full else SHORT_MEGABYTES)
    with tempfile.TemporaryDirectory() as place:
        _measure_import(sheet, Path(place), SESSIONS if full else SHORT_SESSIONS)
    for files in (100, 10_000):
        with tempfile.TemporaryDirectory() as place:
            _measure_checkpoints(sheet, Path(place), files)
    if full:
        _kill(sheet)
    sheet.save()


class _Cost(NamedTuple):
    seconds: float
    cpu: float


def _cost(work: Callable[[], object]) -> _Cost:
    def used() -> float:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in both)

    before = used()
    return _Cost(_seconds(work), used() - before)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def make_home(home: Path, megabytes: int) -> None:
    """Make a home of transcripts of 1 MB and notes of 4 kB, a tenth of them."""
    numbers = random.Random(1)
    sessions, notes = home / "agents/main/sessions", home / "workspace/memory"
    sessions.mkdir(parents=True)
    notes.mkdir(parents=True)
    for number in range(megabytes * 9 // 10):
        (sessions / f"{number}.jsonl").write_bytes(numbers.randbytes(512 * 1024).hex().encode())
    for number in range(megabytes * 256 // 10):
        (notes / f"{number}.md").write_bytes(numbers.randbytes(2048).hex().encode())


def _measure_backups(sheet: Sheet, place: Path, megabytes: int) -> None:
    home, repository = place / "home", Repository(place / "backups")
    make_home(home, megabytes)
    of = f"{megabytes:,} MB, best of {REPEATED}"
    os.sync()

    def archive() -> None:
        subprocess.run(["tar", "cf", place / "home.tar", "-C", home, "."], check=True)
        os.sync()

    def back_up(later: int) -> None:
        with repository.locked(exclusive=True):
            create_backup(home, repository, NOW + timedelta(seconds=later))

    # In turn, since both mostly wait for a disk whose speed changes.
    tar, first = [], []
    for _ in range(REPEATED):
        (place / "home.tar").unlink(missing_ok=True)
        shutil.rmtree(repository.path, ignore_errors=True)
        os.sync()
        tar.append(_cost(archive))
        first.append(_cost(lambda: back_up(0)))
    for what, costs in (("tar", tar), ("first backup", first)):
        sheet.row(what, min(each.seconds for each in costs), "s", of)
        sheet.row(f"{what}, CPU", min(each.cpu for each in costs), "s", of)
    times = min(each.seconds for each in first) / min(each.seconds for each in tar)
    sheet.row("first backup, times tar", times, "×", "at most 3")
    sheet.row("second backup, nothing changed", _seconds(lambda: back_up(1)), "s", "at most 2 for 1,000 MB")
    sheet.row("verify", _seconds(lambda: repository.verify(repository.ids()[:1])), "s", of)
    sheet.row("restore", _seconds(lambda: restore_new(repository, repository.ids()[0], place / "new")), "s", of)


def _measure_import(sheet: Sheet, place: Path, sessions: int) -> None:
    from tests.importing.openclaw_homes import as_text, lines_of

    folder = place / "openclaw/agents/main/sessions"
    folder.mkdir(parents=True)
    index = {}
    for number in range(sessions):
        (folder / f"s{number}.jsonl").write_text(as_text(lines_of(f"s{number}", "Hello", "Again", version=3)))
        index[f"agent:main:s{number}"] = {"sessionId": f"s{number}", "skillsSnapshot": {"prompt": "x" * 2_000}}
    (folder / "sessions.json").write_text(json.dumps(index))
    source = str(place / "openclaw")
    argv = [RETINUE, "import", "openclaw", "--from", source, "--home", str(place / "home"), "--json", "--no-backup"]
    began = time.perf_counter()
    cost = process_cost(argv, runs=1)
    sheet.row("import", time.perf_counter() - began, "s", f"of {sessions:,} sessions")
    sheet.row("import, peak", cost.peak_mb, "MB", f"of {sessions:,} sessions")


def _measure_checkpoints(sheet: Sheet, place: Path, files: int) -> None:
    workspace = place / "workspace"
    workspace.mkdir()
    for number in range(files):
        folder = workspace / f"{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.md").write_text(f"Note {number}\n" * 20)
    store = CheckpointStore(place / "checkpoints", workspace, CheckpointLimits())
    of = f"{files:,} files"
    sheet.row("first checkpoint", _seconds(lambda: store.begin("0", "s", NOW)) * 1000, "ms", of)
    store.end("0", NOW)
    (workspace / "0" / "0.md").write_text("Changed.")
    sheet.row("checkpoint before a turn", _seconds(lambda: store.begin("1", "s", NOW)) * 1000, "ms", of)
    (workspace / "0" / "0.md").write_text("Again.")
    sheet.row("checkpoint after a turn", _seconds(lambda: store.end("1", NOW)) * 1000, "ms", of)
    undo = _seconds(lambda: store.apply(store.next_undo(), "undo", NOW))
    sheet.row("undo", undo * 1000, "ms", of)
    shutil.rmtree(workspace)


def _kill(sheet: Sheet) -> None:
    for path in KILL_TESTS:
        command = [PYTHON, "-m", "pytest", "-q", "-n", "2", path, "-k", "killed"]
        done = subprocess.run(command, env={**os.environ, "RETINUE_KILLS": str(KILLS)}, check=False)
        sheet.row(f"{KILLS} kills: {Path(path).stem}", 0 if done.returncode else 1, "passed")
        if done.returncode:
            raise SystemExit(f"{path} failed with {KILLS} kills")
