"""No table shows a team anything of another, for a role that owns nothing and a query without any filter.

The tables are those of the catalogue, so a new one is tested without being named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg
import pytest

from tests.postgres import create_team_database

pytestmark = pytest.mark.slow

TEAMS = ("red", "blue")
COMMON = frozenset({"schema_migration"})
"""Tables without rows of a team."""
KEPT = frozenset({"organisation", "team"})
"""Tables whose rows only the operator of the database changes."""

_COLUMNS = """
SELECT column_name, udt_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = %s AND is_nullable = 'NO' AND is_generated = 'NEVER'
AND identity_generation IS DISTINCT FROM 'ALWAYS'
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint
WHERE connamespace = current_schema()::regnamespace AND contype IN ('f', 'c') AND conrelid <> 0
ORDER BY contype DESC
"""
_VALUES: dict[str, Any] = {
    "text": "x", "int2": 1, "int4": 1, "int8": 1, "float8": 1.0, "bool": True, "bytea": b"x", "json": "{}",
    "jsonb": "{}", "timestamptz": "2026-01-01", "date": "2026-01-01", "vector": "[1]", "_int4": "{1}", "_text": "{x}",
}  # fmt: skip


@cache
def filled_database() -> tuple[str, str]:
    """Return the URLs of the administrator and of the application for a database with a row per team and table."""
    application = create_team_database(*TEAMS)
    admin = application.replace("retinue_application:", "postgres:")
    with psycopg.connect(admin) as base:
        for table, name in base.execute(_CONSTRAINTS).fetchall():
            base.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}".encode())
        for number, team in enumerate(TEAMS, 1):
            index = base.execute(
                "INSERT INTO memory_index (name) VALUES (%s) RETURNING id", (f"{team}/main",)
            ).fetchone()
            assert index is not None
            for table in sorted(_tables(base) - KEPT - {"memory_index"}):
                _insert(base, table, team, index[0], number)
    return admin, application


def _insert(base: psycopg.Connection[Any], table: str, team: str, index: int, number: int) -> None:
    values = {name: _VALUES[kind] for name, kind in base.execute(_COLUMNS, (table,))}
    named = {"team": team, "index": index, "session": number, "number": number, "id": number}
    values |= {name: value for name, value in named.items() if name in values}
    columns = ", ".join(f'"{name}"' for name in values)
    places = ", ".join(["%s"] * len(values))
    base.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})".encode(), list(values.values()))


def _tables(base: psycopg.Connection[Any]) -> set[str]:
    rows = base.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    return {str(name) for (name,) in rows} - COMMON


def tables() -> set[str]:
    with psycopg.connect(filled_database()[0]) as base:
        return _tables(base)


@pytest.fixture
def blue() -> Iterator[psycopg.Connection[Any]]:
    """A connection of the application for the team `blue`; what it changes is rolled back."""
    with psycopg.connect(filled_database()[1]) as base:
        base.execute("SELECT set_config('app.team', 'blue', false)")
        base.commit()
        yield base
        base.rollback()


def _count(base: psycopg.Connection[Any], table: str) -> int:
    row = base.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_the_role_of_the_application_owns_nothing_and_bypasses_nothing(blue: psycopg.Connection[Any]) -> None:
    role = blue.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user").fetchone()
    owned = blue.execute("SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole").fetchone()
    assert (role, owned) == ((False,), (0,))


def test_every_table_has_policies_that_bind_its_owner_too(blue: psycopg.Connection[Any]) -> None:
    rows = blue.execute(
        "SELECT relname, relrowsecurity AND relforcerowsecurity, "
        "EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid) FROM pg_class c "
        "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()
    assert {name for name, forced, has_policy in rows if not (forced and has_policy)} == COMMON


def test_every_view_has_the_rights_of_the_role_that_reads_it(blue: psycopg.Connection[Any]) -> None:
    rows = blue.execute(
        "SELECT relname, coalesce('security_invoker=true' = ANY (reloptions), false) FROM pg_class "
        "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('v', 'm')"
    ).fetchall()
    assert len(rows) >= 3
    assert {name for name, bound in rows if not bound} == set()


def test_a_query_without_a_filter_reads_the_rows_of_its_team_alone(blue: psycopg.Connection[Any]) -> None:
    with psycopg.connect(filled_database()[0]) as admin:
        assert {table: _count(admin, table) for table in tables() - {"organisation"}} == dict.fromkeys(
            tables() - {"organisation"}, 2
        )
    assert {table: _count(blue, table) for table in tables()} == dict.fromkeys(tables(), 1)
    for table in tables():
        if table not in KEPT and "team" in {column for column, _ in blue.execute(_COLUMNS, (table,))}:
            assert blue.execute(f"SELECT team FROM {table}".encode()).fetchall() == [("blue",)]


def test_without_a_team_nothing_is_read() -> None:
    with psycopg.connect(filled_database()[1]) as base:
        assert {table: _count(base, table) for table in tables()} == dict.fromkeys(tables(), 0)
        base.execute("SELECT set_config('app.team', '', true), set_config('app.operator', 'on', true)")
        others = tables() - KEPT
        assert {table: _count(base, table) for table in others} == dict.fromkeys(others, 0)


def test_rows_are_not_added_to_another_team(blue: psycopg.Connection[Any]) -> None:
    with psycopg.connect(filled_database()[0]) as admin:
        (index,) = admin.execute("SELECT id FROM memory_index WHERE name = 'red/main'").fetchone() or (0,)
    for table in tables() - KEPT - {"memory_index"}:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            _insert(blue, table, "red", index, 3)
        blue.rollback()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        blue.execute("INSERT INTO memory_index (name) VALUES ('red/other')")


def test_rows_of_another_team_are_neither_changed_nor_deleted(blue: psycopg.Connection[Any]) -> None:
    blue.execute("SELECT set_config('app.audit', 'prune', false)")
    blue.commit()
    foreign = {"team": "'red'", "index": "index - 1", "name": "'red/other'"}
    for table in tables() - KEPT:
        assert blue.execute(f"DELETE FROM {table}".encode()).rowcount == 1, table
        blue.rollback()
        columns = {name for name, _ in blue.execute(_COLUMNS, (table,))}
        column = next(name for name in foreign if name in columns)
        moved = 0
        try:
            moved = blue.execute(f"UPDATE {table} SET {column} = {foreign[column]}".encode()).rowcount
        except psycopg.errors.InsufficientPrivilege:
            blue.rollback()
        assert moved == 0, table
