"""The state of a team in PostgreSQL, for stores that are written for `state.sqlite` as well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg.rows import RowMaker

from retinue.core.errors import StorageError
from retinue.storage.database.protocol import Result, Row, Value, Values
from retinue.storage.postgres.server import translated_errors
from retinue.storage.postgres.team_storage import TeamConnection

_LOCK = "SELECT pg_advisory_xact_lock(21094, hashtext(current_setting('app.team')))"
"""One process of a team changes its state at a time, as with SQLite, so a store may read before it writes."""
_CONFLICT = re.compile(r"ON CONFLICT \(")
_NAMED = re.compile(r"(?<![\w:']):(\w+)")
_HINT = re.compile(r" INDEXED BY \w+")


class NamedRow(tuple[Any, ...]):
    """A row, whose values have numbers and names."""

    __slots__ = ()
    places: Mapping[str, int] = {}

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.places[key] if isinstance(key, str) else key)

    def keys(self) -> list[str]:
        return list(self.places)


class PostgresDatabase:
    """The rows of one team, with the interface of `SqliteDatabase`.

    Other teams are hidden by the policies of the tables, and every key begins with the team.
    """

    notes: Sequence[str] = ()
    problem: StorageError | None = None

    def __init__(self, connection: TeamConnection) -> None:
        self._connection = connection

    def read(self, sql: str, values: Sequence[Value] = ()) -> Sequence[Row]:
        """Return the rows of a query."""
        return self._connection.run_for(make_row, translate(sql), _plain(values))

    @contextmanager
    def change(self, *, durable: bool = False) -> Iterator[StateTransaction]:
        """Run a transaction: it is committed at the end of the block, or rolled back if the block raises."""
        with self._connection.transaction(_LOCK) as connection:
            yield StateTransaction(connection)

    def degrade(self, problem: StorageError) -> None:
        """Do nothing: whether this machine's disk can be written does not matter to the database."""

    def recover(self) -> bool:
        """Return True: a lost connection is opened again at the next use."""
        return True

    def close(self) -> None:
        """Do nothing: the connection belongs to the process."""


class StateTransaction:
    """Runs statements of one transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Values = (), /) -> Result:
        with translated_errors():
            cursor = self._connection.cursor(row_factory=make_row)
            if isinstance(values, Mapping):
                named = dict(zip(values, _plain(tuple(values.values())), strict=True))
                return cursor.execute(translate(sql, named=True), named)
            return cursor.execute(translate(sql), _plain(values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Value]], /) -> Result:
        with translated_errors():
            cursor = self._connection.cursor(row_factory=make_row)
            cursor.executemany(translate(sql), [_plain(row) for row in rows])
            return cursor


@cache
def translate(sql: str, *, named: bool = False) -> bytes:
    """Return a statement of a store for PostgreSQL; `storage/database/protocol.py` describes what they may contain."""
    sql = _HINT.sub("", sql.replace("%", "%%"))
    if named:
        sql = _NAMED.sub(r"%(\1)s", sql)
    return _CONFLICT.sub("ON CONFLICT (team, ", sql.replace("?", "%s")).encode()


def make_row(cursor: psycopg.Cursor[Any]) -> RowMaker[NamedRow]:
    """Return the class of a cursor's rows."""
    return _row_class(tuple(column.name for column in cursor.description or ()))


@cache
def _row_class(names: tuple[str, ...]) -> type[NamedRow]:
    return type("NamedRow", (NamedRow,), {"__slots__": (), "places": {name: at for at, name in enumerate(names)}})


def _plain(values: Sequence[Value]) -> tuple[Value, ...]:
    """Return values that PostgreSQL accepts: numbers for flags, and no NUL, which its text cannot contain."""
    return tuple(
        int(value) if isinstance(value, bool) else value.replace("\0", "�") if isinstance(value, str) else value
        for value in values
    )
