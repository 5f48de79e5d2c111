"""SQLite files, read-only."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def db(workspace: Workspace) -> Script:
    with closing(sqlite3.connect(workspace.folder / "shop.db")) as base, base:
        base.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, photo BLOB)")
        base.execute("CREATE TABLE orders (person INTEGER REFERENCES people (id), total REAL)")
        base.execute("INSERT INTO people VALUES (1, 'Ada\nLovelace', x'0001'), (2, 'Grace', NULL)")
        base.execute("INSERT INTO orders VALUES (1, 23.8), (9, 5)")
    return script("sqlite", "db.py", workspace)


def test_the_schema_has_columns_references_and_counts(db: Script) -> None:
    assert db.run("schema", "shop.db") == (
        "orders (table, 2 rows)\n  person  INTEGER\n  total  REAL\n  references person -> people.id\n"
        "people (table, 2 rows)\n  id  INTEGER  key\n  name  TEXT  required\n  photo  BLOB\n"
    )


def test_queries_take_values_and_print_tables(db: Script) -> None:
    found = db.json("query", "shop.db", "SELECT name, photo FROM people WHERE id = ?", "--value", "1")
    assert found == [{"name": "Ada\nLovelace", "photo": "(blob, 2 bytes)"}]
    assert db.run("query", "shop.db", "SELECT id, name FROM people") == "id  name\n1   Ada Lovelace\n2   Grace\n"
    assert db.run("query", "shop.db", "SELECT total FROM orders", "--csv") == "total\n23.8\n5.0\n"
    shown, note = db.run_loudly("query", "shop.db", "SELECT id FROM people", "--limit", "1")
    assert shown == "id\n1\n"
    assert "only the first 1 rows" in note


@pytest.mark.parametrize(
    "statement", ["DELETE FROM people", "CREATE TABLE x (a)", "ATTACH 'new.db' AS n", "SELECT 1; SELECT 2"]
)
def test_nothing_is_changed(db: Script, workspace: Workspace, statement: str) -> None:
    db.fail("query", "shop.db", statement)
    assert not (workspace.folder / "new.db").exists()
    assert db.json("query", "shop.db", "SELECT count(*) AS n FROM people") == [{"n": 2}]


def test_broken_references_are_found(db: Script) -> None:
    assert db.json("check", "shop.db") == [{"problem": "orders: row 2 refers to nothing in people"}]


def test_a_csv_file_becomes_a_table_of_its_own(db: Script, workspace: Workspace) -> None:
    workspace.write("rows.csv", "Day;zip;sum\n2030-05-14;0049;1.5\n2030-05-15;8000;\n")
    db.run("import", "shop.db", "days", "rows.csv", "--delimiter", ";")
    assert db.json("query", "shop.db", "SELECT * FROM days") == [
        {"Day": "2030-05-14", "zip": "0049", "sum": 1.5},
        {"Day": "2030-05-15", "zip": 8000, "sum": None},
    ]
    assert "already exists" in db.fail("import", "shop.db", "days", "rows.csv", "--delimiter", ";")
    workspace.write("rows.csv", "a,b\n1\n")
    assert "line 2" in db.fail("import", "shop.db", "more", "rows.csv")


def test_a_copy_is_whole_and_replaces_nothing(db: Script) -> None:
    db.run("backup", "shop.db", "copy.db")
    assert len(db.json("schema", "copy.db")) == 2
    assert "exists already" in db.fail("backup", "shop.db", "copy.db")


def test_bad_input_is_refused(db: Script, workspace: Workspace) -> None:
    workspace.write("text.db", "hello, this is not a database")
    assert "is not a database" in db.fail("schema", "text.db")
    assert "there is no file" in db.fail("schema", "nowhere.db")
    assert "no such table" in db.fail("query", "shop.db", "SELECT * FROM winds")
