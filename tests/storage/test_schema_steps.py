"""A database of every step of the schema is opened, migrated forward and keeps its rows."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from retinue.storage.database import SqliteDatabase
from retinue.storage.database.state_schema import STATE_SCHEMA


def make_step(path: Path, step: int) -> None:
    """Make a database as the version with this step wrote it, with a row in every table that allows one."""
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        for statements in STATE_SCHEMA[:step]:
            for statement in statements:
                base.execute(statement)
        base.execute(f"PRAGMA user_version = {step}")
        for table, sql in base.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            if table.startswith("sqlite_"):
                continue
            columns = base.execute(f"PRAGMA table_info({table})").fetchall()
            values = [_value(kind, name, sql) for _, name, kind, *_ in columns]
            marks = ", ".join("?" * len(values))
            base.execute(f"INSERT INTO {table} VALUES ({marks})", values)
        base.commit()


def _value(kind: str, name: str, sql: str) -> object:
    allowed = re.search(rf"\b{name} IN \('([^']+)'", sql)
    if allowed:
        return allowed[1]
    if name.endswith("_at") or name in ("at", "slot", "before", "after", "since"):
        return "2026-01-01T00:00:00+00:00"
    return {"INTEGER": 1, "BLOB": b"x", "REAL": 1.0}.get(kind.upper(), "{}")


@pytest.mark.parametrize("step", range(1, len(STATE_SCHEMA) + 1))
def test_a_database_of_each_step_is_migrated_with_its_rows(step: int, tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    make_step(path, step)
    with closing(sqlite3.connect(path)) as base:
        tables = [
            name
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        ]
    database = SqliteDatabase(path)
    try:
        assert database.read("PRAGMA user_version")[0][0] == len(STATE_SCHEMA)
        for table in tables:
            assert database.read(f"SELECT count(*) FROM {table}")[0][0] >= 1, table
        now = {row[0] for row in database.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        database.close()
    fresh = SqliteDatabase(tmp_path / "fresh.sqlite")
    try:
        assert now == {row[0] for row in fresh.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        fresh.close()
