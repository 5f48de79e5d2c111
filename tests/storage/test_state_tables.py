"""The tables of the state are the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retinue.runtime.importing.storage_move import list_tables
from retinue.storage.database import Database
from retinue.storage.postgres.state import translate
from retinue.storage.postgres.team_storage import TeamStorage
from tests.databases import DATABASES, open_database
from tests.postgres import create_database


@pytest.mark.slow
def test_postgresql_has_the_columns_of_sqlite() -> None:
    with closing(TeamStorage(create_database(), "default")) as team:
        found: dict[str, set[str]] = {}
        for table, column in team.connection.run(
            b"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        ):
            found.setdefault(table, set()).add(column)
    for table, columns in list_tables().items():
        assert found[table] - {"team", "rowid"} == set(columns), table


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as database:
        yield database


def test_a_block_that_fails_changes_nothing(database: Database) -> None:
    insert = "INSERT INTO heartbeat_starts (agent, at) VALUES (?, ?)"
    with database.change() as base:
        base.execute(insert, ("main", "now"))
    with pytest.raises(KeyError):
        _insert_and_fail(database, insert)
    (row,) = database.read("SELECT agent, at FROM heartbeat_starts")
    assert (row["agent"], row[1], tuple(row), list(row.keys())) == ("main", "now", ("main", "now"), ["agent", "at"])


def _insert_and_fail(database: Database, insert: str) -> None:
    with database.change() as base:
        base.execute(insert, ("other", "now"))
        raise KeyError


def test_members_of_json_are_found_and_removed(database: Database) -> None:
    for text, owner in (('{"owner": true, "x": "\\ud800 \\u0000"}', "1 true"), ('{"owner": false}', "0 false")):
        query = "SELECT CAST(json_extract(?, '$.owner') AS TEXT) AS owner, json_valid(?) AS valid"
        (row,) = database.read(query, (text, text))
        assert row["owner"] in owner.split()
        assert row["valid"] == 1
    (row,) = database.read("SELECT json_remove(?, '$.images') AS text", ('{"images": [1], "a": 2}',))
    assert row["text"].replace(" ", "") == '{"a":2}'


def test_statements_are_translated() -> None:
    sql = "INSERT INTO t INDEXED BY i VALUES (?, 'a%') ON CONFLICT (a, b) DO NOTHING"
    assert translate(sql) == b"INSERT INTO t VALUES (%s, 'a%%') ON CONFLICT (team, a, b) DO NOTHING"
    named = "SELECT 'agent:' || :name || ':main'"
    assert translate(named, named=True) == b"SELECT 'agent:' || %(name)s || ':main'"
