"""The log of a database: what SQLite would leave out without a word is found, and nothing else is."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from retinue.storage.database.database_file import keep_damaged_log
from retinue.storage.database.wal import WalDamage, find_damage


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the log and the index that a killed process leaves."""
    folder = tmp_path_factory.mktemp("wal")
    path = folder / "live.sqlite"
    numbers = random.Random(3)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE lines (text TEXT)")
        for _ in range(60):
            connection.execute("INSERT INTO lines VALUES (?)", ("x" * numbers.randint(1, 2_000),))
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{suffix}", folder / f"left.sqlite{suffix}")
    return folder / "left.sqlite"


def log_of(path: Path) -> bytes:
    return Path(f"{path}-wal").read_bytes()


def index_of(path: Path) -> bytes:
    return Path(f"{path}-shm").read_bytes()


def lines_with(path: Path, log: bytes, folder: Path) -> int:
    """How many lines SQLite finds with another log."""
    shutil.copy(path, folder / "try.sqlite")
    (folder / "try.sqlite-wal").write_bytes(log)
    (folder / "try.sqlite-shm").unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / "try.sqlite")) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM lines").fetchone()[0])
        except sqlite3.Error:
            return 0


def test_a_whole_log_is_whole(left_behind: Path) -> None:
    assert find_damage(log_of(left_behind), index_of(left_behind)) is None
    assert find_damage(log_of(left_behind)) is None
    assert find_damage(b"") is None


@pytest.mark.slow
def test_a_flipped_bit_is_found_wherever_it_costs_something(left_behind: Path, tmp_path: Path) -> None:
    log, index = log_of(left_behind), index_of(left_behind)
    everything = lines_with(left_behind, log, tmp_path)
    numbers = random.Random(11)
    for _ in range(200):
        at = numbers.randrange(len(log))
        flipped = log[:at] + bytes([log[at] ^ (1 << numbers.randrange(8))]) + log[at + 1 :]
        lost = lines_with(left_behind, flipped, tmp_path) != everything
        assert (find_damage(flipped, index) is not None) == lost, at


def test_a_flipped_bit_is_found_without_the_index_where_changes_follow_it(left_behind: Path) -> None:
    log = log_of(left_behind)
    frame = 24 + int.from_bytes(log[8:12])
    for part in (8, 12, 16, 20, 24, 400):
        at = 32 + 5 * frame + part
        assert find_damage(log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]) == WalDamage(5), part


@pytest.mark.slow
def test_a_log_that_was_cut_off_is_found_by_its_index(left_behind: Path, tmp_path: Path) -> None:
    log, index = log_of(left_behind), index_of(left_behind)
    everything = lines_with(left_behind, log, tmp_path)
    for length in range(0, len(log), len(log) // 40):
        lost = lines_with(left_behind, log[:length], tmp_path) != everything
        assert (find_damage(log[:length], index) is not None) == lost, length
        if length > 32:
            assert find_damage(log[:length]) is None  # nobody can know


def test_a_last_change_that_was_never_finished_is_no_damage(left_behind: Path) -> None:
    log = log_of(left_behind)
    frame = 24 + int.from_bytes(log[8:12])
    unfinished = log[32 : 32 + 4] + bytes(4) + log[32 + 8 : 32 + frame]
    assert find_damage(log + unfinished, index_of(left_behind)) is None


def test_what_is_left_from_before_the_log_began_anew_is_no_damage(left_behind: Path) -> None:
    log = log_of(left_behind)
    frame = 24 + int.from_bytes(log[8:12])
    older = bytearray(log[32 : 32 + 3 * frame])
    for start in range(0, len(older), frame):
        older[start + 8 : start + 16] = b"older!!!"
    assert find_damage(log + bytes(older), index_of(left_behind)) is None


def test_an_index_of_another_log_says_nothing(left_behind: Path) -> None:
    log, index = log_of(left_behind), index_of(left_behind)
    other = index[:32] + b"another." + index[40:80] + b"another." + index[88:]
    assert find_damage(log[: len(log) // 2], other) is None


@pytest.mark.parametrize("content", [b"\0" * 5_000, b"not a log, but long enough to be mistaken for one"])
def test_what_is_no_log_is_damage(content: bytes) -> None:
    assert find_damage(content) == WalDamage(0)


def read_as(path: Path, *contents: bytes) -> None:
    """Make a log that is something else each time it is read, as one is that another process works on."""
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    for pipe in (log, index):
        os.mkfifo(pipe)

    def serve() -> None:
        for content in contents:
            index.write_bytes(b"")
            log.write_bytes(content)

    Thread(target=serve, daemon=True).start()


def test_a_log_that_another_process_works_on_is_not_taken_for_damaged(left_behind: Path, tmp_path: Path) -> None:
    sound = log_of(left_behind)
    torn = sound[:40] + bytes(8) + sound[48:]
    path = tmp_path / "state.sqlite"
    read_as(path, torn, torn[:-1], sound)
    assert keep_damaged_log(path) is None


def test_a_log_that_stays_damaged_is_kept(left_behind: Path, tmp_path: Path) -> None:
    sound = log_of(left_behind)
    damaged = sound[:40] + bytes(8) + sound[48:]
    path = tmp_path / "state.sqlite"
    read_as(path, damaged, damaged[:-1], damaged[:-1])
    kept = keep_damaged_log(path)
    assert kept is not None
    assert kept.read_bytes() == damaged[:-1]
