"""The databases with which every store of the state is tested: a file of SQLite, and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import pytest

from retinue.storage.database import Database, SqliteDatabase
from retinue.storage.postgres.state import PostgresDatabase
from retinue.storage.postgres.team_storage import TeamStorage
from tests.postgres import create_database

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@cache
def _shared_storage() -> tuple[TeamStorage, bytes]:
    """Return a database that the tests of a process use one after the other, and the statement that empties it."""
    storage = TeamStorage(create_database(), "default")
    rows = storage.connection.run(
        b"SELECT 'DELETE FROM ' || tablename FROM pg_tables WHERE schemaname = current_schema() "
        b"AND tablename NOT LIKE 'schema%' AND tablename NOT IN ('organisation', 'team')"
    )
    return storage, "; ".join(row[0] for row in rows).encode()


@contextmanager
def open_database(kind: str, path: Path) -> Iterator[Database]:
    """Open an empty database of a kind; `path` is the file of SQLite."""
    if kind == "sqlite":
        with closing(SqliteDatabase(path)) as database:
            yield database
        return
    storage, empty = _shared_storage()
    storage.connection.run(empty)
    yield PostgresDatabase(storage.connection)
