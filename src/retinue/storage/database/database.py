"""The database of a home, `state.sqlite`: what must survive a crash and is no transcript."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Literal
from urllib.parse import quote

from retinue.core.errors import StorageError
from retinue.storage.database.database_file import (
    DatabaseDamaged,
    NewerDatabase,
    connect,
    create,
    find_strays,
    keep_damaged_log,
    opening_alone,
    put_aside,
    roll_back,
    sqlite_errors_explained,
)
from retinue.storage.database.state_schema import STATE_SCHEMA, Schema
from retinue.storage.files.private import make_private_dir

DATABASE_NAME = "state.sqlite"

Value = str | int | float | bytes | None

log = logging.getLogger(__name__)

_connected: Counter[Path] = Counter()
"""Databases that this process has open. Looking into the files of one of these would undo SQLite's locks on it."""


class Database:
    """One connection to a database that several processes share; any thread may use it, one at a time.

    Statements take well under a millisecond and run where they are called. A file that cannot be used is kept beside
    itself, with its bytes, and a new one is started; `notes` are sentences for people about that. A database that was
    moved away or replaced while it was open is opened anew at the next use.

    With `durable` a change waits for the disk and survives a power cut; without, it survives the death of the process.
    `newer` says what happens to a file of a newer Retinue: it is refused, or put aside like a damaged one.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema = STATE_SCHEMA,
        *,
        durable: bool = False,
        newer: Literal["refuse", "aside"] = "refuse",
    ) -> None:
        self.path = path
        self.notes: list[str] = []
        self._schema = schema
        self._durable = durable
        self._newer = newer
        self._lock = RLock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._open()

    def read(self, sql: str, values: Sequence[Value] = ()) -> list[sqlite3.Row]:
        """The rows that a query gives."""
        with self._using() as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all that is done in it is kept, or nothing where it raises.

        Other processes wait meanwhile, so nothing may be awaited in it.
        """
        with self._using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                roll_back(connection)
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._current()
            try:
                with sqlite_errors_explained(self.path):
                    yield connection
            except DatabaseDamaged as damage:
                if connection.in_transaction:  # a query within a change, which ends first
                    raise
                self._start_over()
                raise DatabaseDamaged(f"{damage} It was kept and a new one was started. Try again.") from damage

    def _current(self) -> sqlite3.Connection:
        """The connection, to the file that stands at the path now."""
        if self._closed:
            raise StorageError(f"{self.path} was closed. Open it again before using it.")
        connection = self._connection
        if connection is not None and (connection.in_transaction or _identity_of(self.path) == self._identity):
            return connection
        self._disconnect()
        return self._open()

    def _start_over(self) -> None:
        """After damage that showed in use: put the file aside, unless another process has done so already."""
        self._disconnect()
        with opening_alone(self.path.parent):
            if _identity_of(self.path) == self._identity:
                self._put_aside("corrupt", "it is damaged")
        self._open()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            _connected[self.path] -= 1

    def _open(self) -> sqlite3.Connection:
        make_private_dir(self.path.parent)
        with opening_alone(self.path.parent):
            for stray in list(find_strays(self.path)):
                self._note(f"{stray.name} did not belong there and was kept as {put_aside(stray, 'corrupt').name}.")
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
                self._put_aside("corrupt", str(damage))
            except NewerDatabase as newer:
                if self._newer == "refuse":
                    raise
                self._put_aside("newer", str(newer))
        create(self.path, self._schema)
        return connect(self.path, self._schema, durable=self._durable)

    def _check_log(self) -> None:
        aside = keep_damaged_log(self.path)
        if aside is not None:
            self._note(
                f"The log of {self.path.name} is damaged: its last changes cannot be read, and messages that were "
                f"accepted then may be missing. It was kept as {aside.name}; check your last messages for answers."
            )

    def _put_aside(self, why: str, reason: str) -> None:
        aside = put_aside(self.path, why)
        self._note(
            f"{self.path.name} could not be used: {reason.rstrip('.')}. It was kept as {aside.name} and a new one was "
            "started; messages that still waited in it will not be answered."
        )

    def _note(self, text: str) -> None:
        self.notes.append(text)
        log.warning(text)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every statement
    except OSError:
        return None
    return found.st_dev, found.st_ino


PATIENCE_SECONDS = 0.5


def query_read_only(path: Path, sql: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]] | None:
    """The rows that a query gives; None where there is no such database or table, or it cannot be read."""
    if not path.is_file():
        return None
    try:
        base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
        try:
            return base.execute(sql, values).fetchall()
        finally:
            base.close()
    except sqlite3.Error:
        return None
