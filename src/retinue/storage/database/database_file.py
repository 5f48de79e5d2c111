"""A database as a file: made whole or not at all, checked before it is used, kept aside when it cannot be.

While a connection is open nothing here may open the file itself: closing such a descriptor would take away the locks
that SQLite holds on it. So files are only looked at, renamed, and made under another name.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

from retinue.core.errors import StorageError
from retinue.storage.database.state_schema import Schema
from retinue.storage.database.wal import find_damage
from retinue.storage.files.descriptors import CREATE, PRIVATE_FILE, sync_folder
from retinue.storage.files.errors import DiskFull, NoPermission, ReadOnly, explained, kind_of

BUSY_SECONDS = 5.0
MOST_CHECKED = 64 * 1024 * 1024
"""A larger file is not read through at every start; damage in it shows when it is used."""

MOST_READINGS = 50
_SIDE_FILES = ("-wal", "-shm")


class DatabaseDamaged(StorageError):
    """The file is not a database, or not ours, or not whole."""


class NewerDatabase(StorageError):
    """The file was written by a newer Retinue."""


def connect(path: Path, schema: Schema, *, durable: bool) -> sqlite3.Connection:
    """A connection to a database that is there, is whole and has every version of `schema`."""
    _look_at(path)
    with sqlite_errors_explained(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.row_factory = sqlite3.Row
            _check_file(path, connection, schema)
            _configure(connection, durable=durable)
            migrate(connection, schema)
            _check_tables(path, connection, schema)
            _check_writable(connection, schema)
        except BaseException:
            connection.close()
            raise
    return connection


def create(path: Path, schema: Schema) -> None:
    """Make a database under another name and move it to its own, so that a crash leaves all of it or nothing."""
    beside = path.with_name(f"{path.name}.new")
    with explained(path.name, path.parent):
        _remove(beside)
        os.close(os.open(beside, CREATE, PRIVATE_FILE))
    try:
        with sqlite_errors_explained(path):
            connection = sqlite3.connect(beside, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                # Nobody sees the file before all of it is on the disk, so one wait for that at the end is enough.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = WAL")
                migrate(connection, schema)
                _configure(connection, durable=True)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()
        with explained(path.name, path.parent):
            beside.rename(path)
            _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            _remove(beside)
        raise


def migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """Apply the versions that the database lacks, each in a transaction of its own."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, statements in enumerate(schema[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise


def put_aside(path: Path, why: str) -> Path:
    """Rename whatever stands at `path`, with its log, to the first free `<name>.<why>-<n>`."""
    aside = _free_name(path, why)
    with explained(path.name, path.parent):
        for suffix in ("", *_SIDE_FILES):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _free_name(path: Path, why: str) -> Path:
    return next(name for n in count(1) if not os.path.lexists(name := path.with_name(f"{path.name}.{why}-{n}")))


def find_strays(path: Path) -> Iterator[Path]:
    """Side files that would stop or mislead SQLite: a log without its database, a folder where a log should be."""
    alone = not os.path.lexists(path)
    for suffix in _SIDE_FILES:
        side = path.with_name(path.name + suffix)
        if os.path.lexists(side) and (alone or not stat.S_ISREG(side.lstat().st_mode)):
            yield side


def keep_damaged_log(path: Path) -> Path | None:
    """Copy a log that SQLite would read only in part, before SQLite clears it; None where it reads all of it.

    May only be called while this process has no connection to the database.
    """
    log, index = (path.with_name(path.name + suffix) for suffix in _SIDE_FILES)
    with explained(log.name, path.parent):
        content, known = _read_log(log, index)
        for _ in range(MOST_READINGS):
            if find_damage(content, known) is None:
                return None
            before = content, known
            content, known = _read_log(log, index)
            # Another process may have begun the log anew while it was read: what it works on is not damaged.
            if (content, known) == before:
                break
        aside = _free_name(log, "corrupt")
        descriptor = os.open(aside, CREATE, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return aside


def _read_log(log: Path, index: Path) -> tuple[bytes, bytes]:
    """A log and its index. The index is read first: it never knows of more than the log has by then."""
    known = index.read_bytes() if index.exists() else b""
    return log.read_bytes() if log.exists() else b"", known


@contextmanager
def opening_alone(folder: Path) -> Iterator[None]:
    """Keep other processes from opening, making or moving the database meanwhile; ends with the process."""
    with explained(folder.name, folder.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what was begun; SQLite has done so itself where the disk was full."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextmanager
def sqlite_errors_explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file into ours; errors in our own SQL stay what they are."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        meaning = _explain(name, path)
        if meaning is None:
            raise
        raise meaning from error


def _explain(name: str, path: Path) -> StorageError | None:
    kind = "_".join(name.split("_")[:2])
    where = f"'{path.name}' in {path.parent}"
    if kind in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
        return DatabaseDamaged(f"{where} is damaged.")
    if name in ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE") or (
        kind in ("SQLITE_IOERR", "SQLITE_CANTOPEN") and _is_full(path.parent)
    ):
        return DiskFull(f"{where} could not be written: the disk is full. Free some space and try again.")
    match kind:
        case "SQLITE_BUSY" | "SQLITE_LOCKED":
            return StorageError(f"{where} is being changed by another process. Try again in a moment.")
        case "SQLITE_READONLY" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return DatabaseDamaged(f"{where} claims to be of a kind that may not be written.")
        case "SQLITE_READONLY":
            return ReadOnly(f"{where} may not be written. Check its permissions and how its disk is mounted.")
        case "SQLITE_CANTOPEN" | "SQLITE_PERM" | "SQLITE_AUTH":
            return NoPermission(f"{where} cannot be opened. Check its owner and permissions.")
        case "SQLITE_IOERR":
            return StorageError(f"{where} cannot be read or written ({name}). Check the disk.")
    return None


def _is_full(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _look_at(path: Path) -> None:
    """Refuse what SQLite would not see as damage: it takes an empty file for an empty database."""
    with explained(path.name, path.parent):
        try:
            found = path.stat()
        except FileNotFoundError:
            raise DatabaseDamaged(f"'{path.name}' is a link that leads nowhere.") from None
        if not stat.S_ISREG(found.st_mode):
            raise DatabaseDamaged(f"'{path.name}' is a {kind_of(found.st_mode)}.")
        if not found.st_size:
            raise DatabaseDamaged(f"'{path.name}' is empty.")
        if found.st_mode & 0o077:
            path.chmod(PRIVATE_FILE)


def _check_file(path: Path, connection: sqlite3.Connection, schema: Schema) -> None:
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute("SELECT count(*) FROM sqlite_master")
        checked = path.stat().st_size <= MOST_CHECKED
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if checked else "ok"
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_ERROR":
            raise
        # These statements are right in every database, so it is the file that is wrong.
        raise DatabaseDamaged(f"'{path.name}' is damaged: {error}.") from error
    if version > len(schema):
        raise NewerDatabase(
            f"{path} was written by a newer Retinue (version {version}; this one knows {len(schema)}). "
            "Update Retinue, or move the file away to go on without the messages in it."
        )
    if verdict != "ok":
        raise DatabaseDamaged(f"'{path.name}' is damaged: {' '.join(str(verdict).split())}.")
    if version < 1:
        raise DatabaseDamaged(f"'{path.name}' is a database of something else.")


def _configure(connection: sqlite3.Connection, *, durable: bool) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # NORMAL hands every commit to the system, so it survives the process; FULL waits until the disk has it.
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute("PRAGMA journal_size_limit = 4194304")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")


def _check_tables(path: Path, connection: sqlite3.Connection, schema: Schema) -> None:
    """A flipped bit in the list of tables passes the check of pages and would fail every statement later."""
    if not _tables_of(schema) <= _tables_in(connection):
        raise DatabaseDamaged(f"'{path.name}' lacks tables that it should have.")


def _check_writable(connection: sqlite3.Connection, schema: Schema) -> None:
    """A flipped bit in the head can make SQLite read the file and refuse every change."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {len(schema)}")
    connection.execute("ROLLBACK")


@cache
def _tables_of(schema: Schema) -> frozenset[tuple[str, ...]]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection, schema)
        return _tables_in(connection)
    finally:
        connection.close()


def _tables_in(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset(tuple(row) for row in rows)


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_folder(descriptor)
    finally:
        os.close(descriptor)
