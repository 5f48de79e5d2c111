"""The database of a home: private, shared by processes, and never in the way of a start."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from retinue.core.errors import StorageError
from retinue.storage.database import Database, DatabaseDamaged, NewerDatabase, SqliteDatabase
from retinue.storage.database.database_file import explain_sqlite_error
from retinue.storage.files import DiskFull, InputOutputError, QuotaExceeded, ReadOnly

FIRST = ("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL)",)
SECOND = ("CREATE TABLE more (id INTEGER PRIMARY KEY)", "CREATE INDEX by_word ON words (word)")
SCHEMA = (FIRST,)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.sqlite"


def opened(path: Path, *, durable: bool = False) -> closing[Database]:
    return closing(SqliteDatabase(path, SCHEMA, durable=durable))


def add(database: Database, *words: str) -> None:
    with database.change() as base:
        base.executemany("INSERT INTO words (word) VALUES (?)", [(word,) for word in words])


def words(database: Database) -> list[str]:
    return [row["word"] for row in database.read("SELECT word FROM words ORDER BY id")]


def make(path: Path, *texts: str) -> None:
    with opened(path) as database:
        add(database, *texts)


def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    make(path, "one", "two")
    with opened(path) as database:
        assert words(database) == ["one", "two"]
        assert database.notes == []


def test_only_the_owner_can_read_it_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(path) as database:
            add(database, "one")
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"state.sqlite": 0o600, "state.sqlite-wal": 0o600, "state.sqlite-shm": 0o600}
    path.chmod(0o644)
    with opened(path):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_durable_changes_wait_for_the_disk(path: Path, durable: bool, synchronous: int) -> None:
    with opened(path, durable=durable) as database:
        assert database.read("PRAGMA synchronous")[0][0] == synchronous
        assert database.read("PRAGMA journal_mode")[0][0] == "wal"


def test_one_change_can_wait_for_the_disk(path: Path) -> None:
    def synchronous() -> int:
        return int(database.read("PRAGMA synchronous")[0][0])

    with opened(path) as database:
        with database.change(durable=True):
            assert synchronous() == 2
        assert synchronous() == 1
        with pytest.raises(ZeroDivisionError), database.change(durable=True):
            raise ZeroDivisionError
        assert synchronous() == 1


def test_a_change_that_fails_leaves_nothing(path: Path) -> None:
    with opened(path) as database:
        with pytest.raises(sqlite3.OperationalError), database.change() as base:  # noqa: PT012
            base.execute("INSERT INTO words (word) VALUES ('lost')")
            base.execute("INSERT INTO nowhere VALUES (1)")
        add(database, "kept")
        assert words(database) == ["kept"]


def test_threads_share_one_connection(path: Path) -> None:
    with opened(path) as database:

        def write(number: int) -> None:
            for word in range(25):
                add(database, f"{number}-{word}")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
        assert sorted(words(database)) == sorted(f"{n}-{i}" for n in range(4) for i in range(25))


def test_a_later_version_is_added_to_what_is_there(path: Path) -> None:
    make(path, "one")
    with closing(SqliteDatabase(path, (FIRST, SECOND))) as database:
        assert words(database) == ["one"]
        assert database.read("SELECT count(*) FROM more")[0][0] == 0
        assert database.read("PRAGMA user_version")[0][0] == 2
        assert database.notes == []


def test_a_version_that_fails_half_way_is_not_applied(path: Path) -> None:
    make(path, "one")
    with pytest.raises(sqlite3.OperationalError):
        SqliteDatabase(path, (FIRST, ("CREATE TABLE more (id)", "CREATE TABLE words (id)")))
    with opened(path) as database:
        assert words(database) == ["one"]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with closing(SqliteDatabase(path, (FIRST, SECOND))) as database:
        add(database, "one")
    with pytest.raises(NewerDatabase, match=r"newer Retinue \(version 2; this one knows 1\). Update Retinue"):
        SqliteDatabase(path, SCHEMA)
    with closing(SqliteDatabase(path, (FIRST, SECOND))) as database:
        assert words(database) == ["one"]


def test_a_database_of_a_newer_version_is_put_aside_where_that_is_wanted(path: Path) -> None:
    with closing(SqliteDatabase(path, (FIRST, SECOND))) as database:
        add(database, "one")
    with closing(SqliteDatabase(path, SCHEMA, newer="aside")) as database:
        assert words(database) == []
        assert "state.sqlite.newer-1" in database.notes[0]
    with closing(SqliteDatabase(path.with_name("state.sqlite.newer-1"), (FIRST, SECOND))) as database:
        assert words(database) == ["one"]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def shorten_to_less_than_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_nul(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(b"not a database " * 1000)


def break_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(range(256)) * 16
    path.write_bytes(data)


def break_the_list_of_tables(path: Path) -> None:
    data = path.read_bytes()
    assert b"CREATE TABLE words" in data
    path.write_bytes(data.replace(b"tablewordswords", b"tablewoqdswoqds").replace(b"TABLE words", b"TABLE woqds"))


def make_it_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE others (id)")


@pytest.mark.parametrize(
    "damage",
    [
        shorten,
        shorten_to_less_than_a_header,
        empty,
        fill_with_nul,
        fill_with_garbage,
        break_a_page,
        break_the_list_of_tables,
        make_it_foreign,
    ],
)
def test_a_damaged_database_is_kept_aside_and_a_new_one_started(path: Path, damage: Callable[[Path], None]) -> None:
    make(path, *(f"a word {n} of some length" for n in range(500)))
    damage(path)
    bytes_before = path.read_bytes()
    with opened(path) as database:
        assert words(database) == []
        add(database, "new")
        [note] = database.notes
        assert "It was kept as state.sqlite.corrupt-1" in note
    assert path.with_name("state.sqlite.corrupt-1").read_bytes() == bytes_before
    with opened(path) as database:
        assert words(database) == ["new"]
        assert database.notes == []


@pytest.mark.slow
def test_bits_flipped_anywhere_never_stop_the_start(path: Path) -> None:
    make(path, *(f"word {n}" for n in range(20)))
    whole = path.read_bytes()
    for at in [*range(100), *range(100, len(whole), 97)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with closing(SqliteDatabase(path, SCHEMA, newer="aside")) as database:
            add(database, "more")
            assert words(database)[-1] == "more"


@pytest.mark.slow
def test_bits_flipped_in_the_log_of_a_dead_process_never_stop_the_start(path: Path, tmp_path: Path) -> None:
    with opened(path) as database:
        for n in range(20):
            add(database, f"word {n}")
        whole, log = path.read_bytes(), path.with_name("state.sqlite-wal").read_bytes()
    for number, at in enumerate(range(0, len(log), 997)):
        copy = tmp_path / str(number) / "state.sqlite"
        copy.parent.mkdir()
        copy.write_bytes(whole)
        copy.with_name("state.sqlite-wal").write_bytes(log[:at] + bytes([log[at] ^ 0x10]) + log[at + 1 :])
        with opened(copy) as database:
            kept = words(database)
            assert kept == [f"word {n}" for n in range(len(kept))]
            add(database, "more")


def test_a_folder_in_its_place_is_kept_aside(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "inside").write_text("something")
    with opened(path) as database:
        add(database, "new")
        assert "is a folder" in database.notes[0]
    assert path.with_name("state.sqlite.corrupt-1").joinpath("inside").read_text() == "something"


def test_names_of_those_kept_aside_are_never_used_twice(path: Path) -> None:
    path.parent.mkdir()
    for number in (1, 2, 3):
        path.write_bytes(b"garbage %d" % number)
        SqliteDatabase(path, SCHEMA).close()
    kept = [path.with_name(f"state.sqlite.corrupt-{number}").read_bytes() for number in (1, 2, 3)]
    assert kept == [b"garbage 1", b"garbage 2", b"garbage 3"]


def test_several_that_find_the_damage_at_once_start_one_new_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"garbage")

    def write(word: str) -> int:
        with opened(path) as database:
            add(database, word)
            return len(database.notes)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(write, "abcdefgh")) == 1
    with opened(path) as database:
        assert sorted(words(database)) == list("abcdefgh")


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_folder_where_the_log_should_be_does_not_stop_the_start(path: Path, suffix: str) -> None:
    make(path, "one")
    path.with_name(path.name + suffix).mkdir()
    with opened(path) as database:
        assert words(database) == ["one"]
        assert f"kept as state.sqlite{suffix}.corrupt-1" in database.notes[0]


def test_a_log_without_its_database_is_kept_and_not_played_into_a_new_one(path: Path) -> None:
    with opened(path) as database:
        add(database, "one")
        log = path.with_name("state.sqlite-wal").read_bytes()
    path.unlink()
    path.with_name("state.sqlite-wal").write_bytes(log)
    with opened(path) as database:
        assert words(database) == []
    assert path.with_name("state.sqlite-wal.corrupt-1").read_bytes() == log


def test_one_that_is_removed_while_open_is_made_again(path: Path) -> None:
    with opened(path) as database:
        add(database, "one")
        for file in path.parent.iterdir():
            file.unlink()
        add(database, "two")
        assert words(database) == ["two"]
    with opened(path) as database:
        assert words(database) == ["two"]


def test_damage_that_shows_in_use_is_told_once_and_then_over(path: Path) -> None:
    make(path, *(f"{n} is more than SQLite keeps in memory".ljust(500) for n in range(8000)))
    with opened(path) as first, opened(path) as second:
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(b"\xff" * (path.stat().st_size - 8192))
        with pytest.raises(DatabaseDamaged, match="Try again"):
            words(first)
        add(first, "new")
        assert words(second) == ["new"]
    assert path.with_name("state.sqlite.corrupt-1").is_file()


def test_a_start_that_was_killed_leaves_no_half_database(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("state.sqlite.new").write_bytes(b"half a database")
    with opened(path) as database:
        add(database, "one")
        assert database.notes == []
    assert not path.with_name("state.sqlite.new").exists()


WRITER = """
import sys
from pathlib import Path
from retinue.storage.database import Database, SqliteDatabase

database = SqliteDatabase(Path(sys.argv[1]), (("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL)",),))
number = 0
while True:
    with database.change() as base:
        base.execute("INSERT INTO words (word) VALUES (?)", (f"{sys.argv[2]}-{number}",))
    print(f"{sys.argv[2]}-{number}", flush=True)
    number += 1
"""


@pytest.mark.slow
def test_what_was_committed_survives_kill_9(path: Path) -> None:
    told: list[str] = []
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(round_)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        told += [process.stdout.readline().decode().strip() for _ in range(30 + 17 * round_)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().decode().split()
        process.stdout.close()
        process.wait()
    with opened(path) as database:
        kept = words(database)
        assert database.notes == []
    assert set(told) <= set(kept)
    assert len(kept) - len(told) <= 4


FILLER = """
import resource, sys
from pathlib import Path
from retinue.core.errors import StorageError
from retinue.storage.database import Database, SqliteDatabase
from retinue.storage.files import DiskFull

path, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    database = SqliteDatabase(path, (("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL)",),))
    for number in range(10_000):
        with database.change() as base:
            base.execute("INSERT INTO words (word) VALUES (?)", (str(number) + " " * 500,))
        print(number, flush=True)
except DiskFull as error:
    print("full:", error)
"""


def check_filled(path: Path, output: str, reason: str) -> None:
    *numbers, last = output.splitlines()
    assert last.startswith("full: 'state.sqlite' in ")
    assert reason in last
    with opened(path) as database:
        assert [word.strip() for word in words(database)] == numbers
        add(database, "goes on")
        assert database.notes == []
        assert database.read("PRAGMA integrity_check")[0][0] == "ok"
    assert not path.with_name("state.sqlite.new").exists()


@pytest.mark.parametrize("limit", [100, 4096, 9000, 33_000, 50_000, 200_000])
def test_a_file_size_limit_is_an_explicit_error_and_nothing_is_torn(path: Path, limit: int) -> None:
    argv = [sys.executable, "-c", FILLER, str(path), str(limit)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    check_filled(path, ended.stdout, "the file size limit is reached. Raise the limit")


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [4, 16, 32, 48, 64, 128, 300])
def test_a_full_disk_is_an_explicit_error_and_nothing_is_torn(path: Path, tmp_path: Path, kilobytes: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""
        mount -t tmpfs -o size={kilobytes}k tmpfs {disk} || exit 77
        {sys.executable} -c "$FILLER" {disk}/state.sqlite 0 || exit 1
        cp -a {disk}/. {path.parent}/
    """
    path.parent.mkdir()
    environment = {**os.environ, "FILLER": FILLER}
    ended = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, env=environment)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("no file system may be mounted here")
    assert ended.returncode == 0, ended.stderr
    check_filled(path, ended.stdout, "the disk is full. Free some space")


def test_disk_full_is_no_reason_to_put_a_database_aside(path: Path) -> None:
    make(path, "one")
    script = FILLER.replace("database = ", "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); database = ")
    ended = subprocess.run(
        [sys.executable, "-c", script, str(path), "0"], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.startswith("full:")
    with opened(path) as database:
        assert words(database) == ["one"]
    assert not path.with_name("state.sqlite.corrupt-1").exists()


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.ENOSPC, DiskFull, "the disk is full. Free some space"),
        (errno.EDQUOT, QuotaExceeded, "the disk quota is exceeded. Delete files of this user or raise the quota"),
        (errno.EROFS, ReadOnly, "is mounted read-only. Check the disk and mount it writable"),
        (errno.EIO, InputOutputError, "the disk reported an I/O error. Check the disk"),
        (0, InputOutputError, "the disk reported an I/O error. Check the disk"),
    ],
    ids=["full", "quota", "read-only", "I/O error", "I/O error in one file"],
)
def test_each_error_of_the_disk_has_its_own_message(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError], reason: str
) -> None:
    """SQLite reports the same error for all of these, so the disk is probed by a temporary file."""
    make(path, "one")

    def fail(descriptor: int, data: bytes) -> int:
        if number:
            raise OSError(number, os.strerror(number))
        return len(data)

    monkeypatch.setattr(os, "write", fail)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_WRITE"
    found = explain_sqlite_error(error, path)
    assert type(found) is kind
    assert reason in str(found)
    assert [file.name for file in path.parent.iterdir()] == ["state.sqlite"]


@pytest.mark.slow
def test_a_read_only_file_system_is_named(path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""
        mount -t tmpfs tmpfs {disk} || exit 77
        cp -a {path.parent}/. {disk}/ && mount -o remount,ro {disk} || exit 1
        {sys.executable} -c "$READER" {disk}/state.sqlite 0
    """
    make(path, "one")
    environment = {**os.environ, "READER": FILLER.replace("DiskFull", "ReadOnly")}
    ended = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, env=environment)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("no file system may be mounted here")
    assert "is on a file system that is mounted read-only. Check the disk" in ended.stdout, ended.stderr


DEGRADED = """
import resource, sys
from pathlib import Path
from retinue.storage.database import Database, SqliteDatabase
from retinue.storage.files import DiskFull

before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
schema = (("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL)",),)
database = SqliteDatabase(Path(sys.argv[1]), schema, degrades=True)
print([row["word"] for row in database.read("SELECT word FROM words")], database.problem is not None)
try:
    with database.change() as base:
        base.execute("INSERT INTO words (word) VALUES ('lost')")
except DiskFull as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
with database.change() as base:
    base.execute("INSERT INTO words (word) VALUES ('two')")
print([row["word"] for row in database.read("SELECT word FROM words")], database.problem is not None)
database.close()
"""


def test_a_database_that_cannot_be_written_can_be_read_and_recovers(path: Path) -> None:
    make(path, "one")
    ended = subprocess.run([sys.executable, "-c", DEGRADED, str(path)], capture_output=True, text=True, timeout=60)
    before, refused, after = ended.stdout.splitlines()
    assert before == "['one'] True"
    assert "the file size limit is reached" in refused
    assert after == "['one', 'two'] False"
    with opened(path) as database:
        assert words(database) == ["one", "two"]
        assert database.notes == []
