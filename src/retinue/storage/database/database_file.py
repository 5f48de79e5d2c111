"""A database file: created atomically, checked before use, and moved aside if it is unusable.

While a connection is open, nothing here may open the file itself: closing such a descriptor would release the locks
that SQLite holds on it. Therefore files are only inspected by `stat`, renamed, and created under another name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

from retinue.core.errors import StorageError
from retinue.storage.database.state_schema import Schema
from retinue.storage.database.wal import find_damage
from retinue.storage.files.descriptors import CREATE, FOLDER, PRIVATE_FILE, find_disk_problem, sync_folder, write_atomic
from retinue.storage.files.errors import NoPermission, ReadOnly, explain, explained, kind_of

BUSY_SECONDS = 5.0
MAX_CHECKED_BYTES = 64 * 1024 * 1024
"""A larger file is not checked completely at every start; damage in it is detected when it is used."""

MAX_READ_ATTEMPTS = 50
_SIDE_FILES = ("-wal", "-shm")
_SALVAGED, _REPORT, _SHOWN = ".salvaged", ".txt", ".shown"


class DatabaseDamaged(StorageError):
    """The file is not a database, not a Retinue database, or incomplete."""


class NewerDatabase(StorageError):
    """The file was written by a newer Retinue, or its version number is damaged.

    With `same_tables`, its tables are those that this Retinue knows, so their rows can be read.
    """

    def __init__(self, message: str, *, same_tables: bool) -> None:
        super().__init__(message)
        self.same_tables = same_tables


def connect(path: Path, schema: Schema, *, durable: bool) -> sqlite3.Connection:
    """Connect to an existing database, check it, and apply the missing versions of `schema`."""
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


def create(path: Path, schema: Schema, fill: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Create a database under a temporary name and rename it, so that a crash leaves either all of it or nothing.

    `fill` inserts its first rows.
    """
    beside = path.with_name(f"{path.name}.new")
    with explained(path.name, path.parent):
        _remove(beside)
        os.close(os.open(beside, CREATE, PRIVATE_FILE))
    try:
        with sqlite_errors_explained(path):
            connection = sqlite3.connect(beside, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                # No other process sees the file before all of it is on the disk, so one sync at the end is enough.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = WAL")
                migrate(connection, schema)
                if fill is not None:
                    fill(connection)
                _configure(connection, durable=True)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()
        with explained(path.name, path.parent):
            _rename_durably(beside, path)
    except BaseException:
        with suppress(OSError):
            _remove(beside)
        raise


def migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    """Apply the versions that the database lacks, each in its own transaction."""
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


def replace_damaged(path: Path, schema: Schema, fill: Callable[[sqlite3.Connection], None], why: str) -> Path:
    """Put a new database with the rows of `fill` in the place of a damaged one; return the new name of the damaged one.

    The new database is complete before the damaged one is moved: if the process is killed in between, the next start
    finds it (`adopt_salvaged`).
    """
    salvaged = path.with_name(path.name + _SALVAGED)
    create(salvaged, schema, fill)
    aside = put_aside(path, why)
    adopt_salvaged(path)
    return aside


def adopt_salvaged(path: Path) -> None:
    """Use the new database of an interrupted `replace_damaged` if the damaged one was moved away, else remove it."""
    salvaged = path.with_name(path.name + _SALVAGED)
    if not os.path.lexists(salvaged):
        return
    with explained(path.name, path.parent):
        if os.path.lexists(path):
            _remove(salvaged)
        else:
            _rename_durably(salvaged, path)


def put_aside(path: Path, why: str) -> Path:
    """Rename the file at `path`, with its log, to the first free `<name>.<why>-<n>`."""
    aside = _free_name(path, why)
    with explained(path.name, path.parent):
        for suffix in ("", *_SIDE_FILES):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def write_report(aside: Path, text: str) -> None:
    """Store what happened to a file beside it, until it is deleted; `read_reports` finds it."""
    with suppress(StorageError):
        write_atomic(aside.with_name(aside.name + _REPORT), text.encode(), synced=False)


def read_reports(path: Path, *, unshown: bool = False) -> dict[Path, str]:
    """Return the reports about the files of a database that were moved aside and still exist, the oldest first.

    With `unshown`, only those that no chat has shown yet.
    """
    found = {}
    for report in sorted(path.parent.glob(f"{path.name}*{_REPORT}"), key=lambda each: each.stat().st_mtime_ns):
        kept, shown = report.with_suffix(""), report.suffixes[-2:] == [_SHOWN, _REPORT]
        if os.path.lexists(kept.with_suffix("") if shown else kept) and not (shown and unshown):
            with suppress(OSError):
                found[report] = report.read_text(errors="replace")
    return found


def mark_report_shown(report: Path) -> None:
    with suppress(OSError):
        report.rename(report.with_suffix(_SHOWN + _REPORT))


def _free_name(path: Path, why: str) -> Path:
    return next(name for n in count(1) if not os.path.lexists(name := path.with_name(f"{path.name}.{why}-{n}")))


def find_strays(path: Path) -> Iterator[Path]:
    """Yield side files that would mislead SQLite: a log without its database, a folder in the place of a log."""
    alone = not os.path.lexists(path)
    for suffix in _SIDE_FILES:
        side = path.with_name(path.name + suffix)
        if os.path.lexists(side) and (alone or not stat.S_ISREG(side.lstat().st_mode)):
            yield side


def keep_damaged_log(path: Path) -> Path | None:
    """Copy a log that SQLite would read only in part, before SQLite clears it; None if SQLite reads all of it.

    Call this only while the process has no connection to the database.
    """
    log, index = (path.with_name(path.name + suffix) for suffix in _SIDE_FILES)
    with explained(log.name, path.parent):
        content, known = _read_log(log, index)
        for _ in range(MAX_READ_ATTEMPTS):
            if find_damage(content, known) is None:
                return None
            before = content, known
            content, known = _read_log(log, index)
            # Another process may have restarted the log while it was read: a log in use is not damaged.
            if (content, known) == before:
                break
        aside = _free_name(log, "corrupt")
        descriptor = os.open(aside, CREATE, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return aside


def _read_log(log: Path, index: Path) -> tuple[bytes, bytes]:
    """Read a log and its index. The index is read first: it never refers to more than the log has by then."""
    known = index.read_bytes() if index.exists() else b""
    return log.read_bytes() if log.exists() else b"", known


@contextmanager
def opening_alone(folder: Path) -> Iterator[None]:
    """Prevent other processes from opening, creating or moving the database during the block."""
    with explained(folder.name, folder.parent):
        descriptor = os.open(folder, FOLDER)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll the transaction back; SQLite has already done so if the disk was full."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


@contextmanager
def sqlite_errors_explained(path: Path) -> Iterator[None]:
    """Translate SQLite's errors about the file into `StorageError`; errors in the SQL itself are not translated."""
    try:
        yield
    except sqlite3.Error as error:
        meaning = explain_sqlite_error(error, path)
        if meaning is error:
            raise
        raise meaning from error


def explain_sqlite_error(error: sqlite3.Error, path: Path) -> Exception:
    """Return what an error means for the file; an error in the SQL itself is returned unchanged."""
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, sqlite3.OperationalError) and not name:
        # The only such error that SQLite did not report itself: a text that cannot be decoded.
        return DatabaseDamaged(f"'{path.name}' in {path.parent} contains text that cannot be read.")
    kind = "_".join(name.split("_")[:2])
    where = f"'{path.name}' in {path.parent}"
    disk_error = find_disk_problem(path) if kind in ("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY") else None
    if disk_error is not None:
        return disk_error
    if kind in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
        return DatabaseDamaged(f"{where} is damaged.")
    match kind:
        case "SQLITE_FULL":
            return explain(OSError(errno.ENOSPC, ""), path.name, path.parent)
        case "SQLITE_BUSY" | "SQLITE_LOCKED":
            return StorageError(f"{where} is being changed by another process. Try again in a moment.")
        case "SQLITE_READONLY" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return DatabaseDamaged(f"{where} has a format that cannot be written.")
        case "SQLITE_READONLY":
            return ReadOnly(f"{where} may not be written. Check its owner and permissions.")
        case "SQLITE_CANTOPEN" | "SQLITE_PERM" | "SQLITE_AUTH":
            return NoPermission(f"{where} cannot be opened. Check its owner and permissions.")
        case "SQLITE_IOERR":
            return explain(OSError(errno.EIO, ""), path.name, path.parent)
    return error


def _look_at(path: Path) -> None:
    """Refuse files that SQLite would not report as damaged: it accepts an empty file as an empty database."""
    with explained(path.name, path.parent):
        try:
            found = path.stat()
        except FileNotFoundError:
            raise DatabaseDamaged(f"'{path.name}' is a dangling symbolic link.") from None
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
        checked = path.stat().st_size <= MAX_CHECKED_BYTES
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if checked else "ok"
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_ERROR":
            raise
        # These statements are valid in every database, so the error is caused by the file.
        raise DatabaseDamaged(f"'{path.name}' is damaged: {error}.") from error
    if version > len(schema):
        raise NewerDatabase(
            f"{path} was written by a newer Retinue (version {version}; this one knows {len(schema)}). "
            "Update Retinue, or move the file away to go on without the messages in it.",
            same_tables=_tables_in(connection) == _tables_of(schema),
        )
    if verdict != "ok":
        raise DatabaseDamaged(f"'{path.name}' is damaged: {' '.join(str(verdict).split())}.")
    if version < 1:
        raise DatabaseDamaged(f"'{path.name}' is a database of another program.")
    later = {name for _, name, *_ in _tables_of(schema)} - {name for _, name, *_ in _tables_of(schema[:version])}
    if later & {name for _, name, *_ in _tables_in(connection)}:
        raise DatabaseDamaged(f"'{path.name}' has the version number {version}, but tables of a later version.")


def _configure(connection: sqlite3.Connection, *, durable: bool) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # NORMAL passes each commit to the system, so it survives the process; FULL waits until it is on the disk.
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute("PRAGMA journal_size_limit = 4194304")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")


def _check_tables(path: Path, connection: sqlite3.Connection, schema: Schema) -> None:
    """Check that all tables exist: `quick_check` does not detect a flipped bit in the schema."""
    if not _tables_of(schema) <= _tables_in(connection):
        raise DatabaseDamaged(f"'{path.name}' lacks required tables.")


def _check_writable(connection: sqlite3.Connection, schema: Schema) -> None:
    """Check that the file can be changed: a flipped bit in the header can make SQLite treat it as read-only."""
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


def _rename_durably(old: Path, new: Path) -> None:
    """Rename a file in its folder, so that the new name survives a power failure."""
    old.rename(new)
    folder = os.open(new.parent, FOLDER)
    try:
        sync_folder(folder)
    finally:
        os.close(folder)


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
