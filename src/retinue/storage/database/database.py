"""The database of a home, `state.sqlite`: durable state other than transcripts."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Literal, NoReturn
from urllib.parse import quote

from retinue.core.errors import StorageError
from retinue.storage.database.database_file import (
    DatabaseDamaged,
    NewerDatabase,
    adopt_salvaged,
    connect,
    create,
    explain_sqlite_error,
    find_strays,
    keep_damaged_log,
    migrate,
    opening_alone,
    put_aside,
    replace_damaged,
    roll_back,
    write_report,
)
from retinue.storage.database.protocol import Value
from retinue.storage.database.state_schema import STATE_SCHEMA, Schema
from retinue.storage.files.descriptors import find_disk_problem, make_private_dir
from retinue.storage.files.errors import DiskFull, InputOutputError, ReadOnly

DATABASE_NAME = "state.sqlite"

log = logging.getLogger(__name__)

_connected: Counter[Path] = Counter()
"""Databases that this process has open.

Opening and closing the file of one of these would release SQLite's locks on it.
"""


class SqliteDatabase:
    """One connection to a database that several processes share. Any thread may use it, one at a time.

    Statements take well under a millisecond and run in the calling thread. A file that cannot be used is renamed and
    kept, and a new one with its readable rows is created; `notes` contains messages about this for the operator, and
    `read_reports` returns those of all processes. A database that was moved or
    replaced while it was open is reopened at the next use.

    With `durable`, a change waits for the disk and survives a power failure; without it, a change survives the end of
    the process. `newer` determines whether a file of a newer Retinue is refused or moved aside like a damaged one. With
    `degrades`, a database on a disk that cannot be written is opened nevertheless: its rows can be read, `problem` says
    why a change is refused, and `recover` uses the file again as soon as that is possible.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema = STATE_SCHEMA,
        *,
        durable: bool = False,
        newer: Literal["refuse", "aside"] = "refuse",
        degrades: bool = False,
    ) -> None:
        self.path = path
        self.notes: list[str] = []
        self.problem: StorageError | None = None
        self._degrades = degrades
        self._schema = schema
        self._durable = durable
        self._newer = newer
        self._lock = RLock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._open()

    def read(self, sql: str, values: Sequence[Value] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock:  # no context manager for errors: this is called twenty times in a turn
            connection = self._current()
            try:
                return connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                self._fail(error, connection)

    @contextmanager
    def change(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction: it is committed at the end of the block, or rolled back if the block raises.

        Other processes wait during the transaction, so the block must not await. With `durable` the commit waits for
        the disk, also in a database that is not durable itself: for rare changes whose loss would repeat an effect.
        """
        with self._lock:
            if self.problem is not None and not self.recover():
                raise type(self.problem)(str(self.problem))
            connection = self._current()
            try:
                if durable and not self._durable:
                    connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    roll_back(connection)
                    raise
            except (sqlite3.Error, DatabaseDamaged) as error:
                self._fail(error, connection)
            finally:
                if durable and not self._durable and self._connection is connection and not connection.in_transaction:
                    connection.execute("PRAGMA synchronous = NORMAL")

    def degrade(self, problem: StorageError) -> None:
        """Refuse changes with `problem` until `recover` succeeds; rows can still be read."""
        with self._lock:
            self.problem = problem

    def recover(self) -> bool:
        """Allow changes again if the disk can be written now; return whether they are allowed."""
        with self._lock:
            if self.problem is None:
                return True
            self.problem = find_disk_problem(self.path)
            if self.problem is None and self._identity is None:  # the connection is to a copy in memory
                self._disconnect()
                self._open()
            return self.problem is None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _fail(self, error: Exception, connection: sqlite3.Connection) -> NoReturn:
        """Raise what an error of SQLite means; a damaged file is replaced first."""
        explained = explain_sqlite_error(error, self.path) if isinstance(error, sqlite3.Error) else error
        if isinstance(explained, DatabaseDamaged) and not connection.in_transaction:
            self._start_over()
            raise DatabaseDamaged(f"{explained} It was kept and a new one was started. Try again.") from error
        if explained is error:  # also damage that a query within the change reported
            raise error
        raise explained from error

    def _current(self) -> sqlite3.Connection:
        """Return the connection to the file that is at the path now."""
        if self._closed:
            raise StorageError(f"{self.path} was closed. Open it again before using it.")
        connection = self._connection
        if connection is not None and (
            connection.in_transaction or self.problem is not None or _identity_of(self.path) == self._identity
        ):
            return connection
        self._disconnect()
        return self._open()

    def _start_over(self) -> None:
        """Move a file aside that turned out to be damaged in use, unless another process has already done so."""
        self._disconnect()
        with opening_alone(self.path.parent):
            if _identity_of(self.path) == self._identity:
                self._replace("corrupt", "it is damaged")
        self._open()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            _connected[self.path] -= 1

    def _open(self) -> sqlite3.Connection:
        try:
            return self._open_file()
        except (DiskFull, InputOutputError, ReadOnly) as error:
            if not self._degrades:
                raise
            from retinue.storage.database.damaged_pages import open_snapshot  # rare, as in `_replace`

            log.error("%s is read-only: %s", self.path.name, error)
            self.problem, self._identity = error, None
            self._connection = open_snapshot(self.path)
            migrate(self._connection, self._schema)
            _connected[self.path] += 1
            return self._connection

    def _open_file(self) -> sqlite3.Connection:
        make_private_dir(self.path.parent)
        with opening_alone(self.path.parent):
            for stray in list(find_strays(self.path)):
                aside = put_aside(stray, "corrupt")
                self._add_note(f"{stray.name} did not belong there and was kept as {aside.name}.", aside)
            adopt_salvaged(self.path)
            if not _connected[self.path]:
                self._check_log()
            self._connection = self._connect()
            _connected[self.path] += 1
            self._identity = _identity_of(self.path)
            return self._connection

    def _connect(self) -> sqlite3.Connection:
        if os.path.lexists(self.path):
            try:
                return connect(self.path, self._schema, durable=self._durable)
            except DatabaseDamaged as damage:
                self._replace("corrupt", str(damage))
            except NewerDatabase as newer:
                if self._newer == "refuse":
                    raise
                if newer.same_tables:
                    self._replace("newer", str(newer))
                else:
                    self._put_aside("newer", str(newer))
                    create(self.path, self._schema)
        else:
            create(self.path, self._schema)
        return connect(self.path, self._schema, durable=self._durable)

    def _check_log(self) -> None:
        aside = keep_damaged_log(self.path)
        if aside is not None:
            self._add_note(
                f"The log of {self.path.name} is damaged: its last changes cannot be read, and messages that were "
                f"accepted then may be missing. It was kept as {aside.name}; check your last messages for answers.",
                aside,
            )

    def _replace(self, why: str, reason: str) -> None:
        """Move a file aside, and put a new one with its readable rows and those of its copy in its place."""
        # Damage is rare, and each start of the program imports this module.
        from retinue.storage.database.copies import read_copy
        from retinue.storage.database.damaged_pages import load_damaged
        from retinue.storage.database.salvage import Salvage, TableReport, describe_salvage

        copy = read_copy(self.path)
        salvage = Salvage(load_damaged(self.path), self._schema, copy.content if copy else None, migrate)
        reports: tuple[TableReport, ...] = ()

        def fill(base: sqlite3.Connection) -> None:
            nonlocal reports
            reports = salvage.write(base)

        aside = replace_damaged(self.path, self._schema, fill, why)
        copied_at = copy.made_at if copy and any(report.restored for report in reports) else None
        rows = describe_salvage(reports, copied_at)
        self._add_note(
            f"{self.path.name} could not be used: {reason.rstrip('.')}. It was kept as {aside.name}. {rows}", aside
        )

    def _put_aside(self, why: str, reason: str) -> None:
        aside = put_aside(self.path, why)
        self._add_note(
            f"{self.path.name} could not be used: {reason.rstrip('.')}. It was kept as {aside.name} and a new one was "
            "started; messages that still waited in it will not be answered.",
            aside,
        )

    def _add_note(self, text: str, aside: Path) -> None:
        self.notes.append(text)
        write_report(aside, text)
        log.warning(text)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every statement
    except OSError:
        return None
    return found.st_dev, found.st_ino


READ_TIMEOUT_SECONDS = 0.5


def query_read_only(path: Path, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]] | None:
    """Return the rows of a query; None if the database or table does not exist or cannot be read."""
    if not path.is_file():
        return None
    try:
        base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=READ_TIMEOUT_SECONDS)
        try:
            return base.execute(sql, values).fetchall()
        finally:
            base.close()
    except sqlite3.Error:
        return None
