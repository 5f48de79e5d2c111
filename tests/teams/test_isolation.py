"""The database keeps teams apart by itself, also for a query that forgets its filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from retinue.core.errors import ConfigError
from retinue.storage.postgres.server import PostgresServer, read_statements
from retinue.teams.access import NewAccess
from retinue.teams.database import TeamDatabase, TeamRegistry
from retinue.teams.members import NewMember
from retinue.teams.roles import TeamRole
from retinue.teams.sealing import Seal, TeamSecretStore
from retinue.teams.settings import SignInLimits
from tests.postgres import create_database
from tests.teams.conftest import Database, SetClock, TeamFixture

TABLES = ("team_member", "team_agent_role", "team_invitation", "team_access", "team_sign_in", "team_secret")


def fill(team: TeamFixture) -> None:
    """Put at least one row into every table of a team."""
    member = team.add("ada@example.org")
    team.members.set_agent_role(member.id, "main", TeamRole.VIEWER, TeamRole.OWNER)
    team.members.invite("bob@example.org", TeamRole.MEMBER, "ada", TeamRole.OWNER)
    team.access.create(NewAccess(member.id, "password", "a browser"))
    team.sign_ins.begin_browser()
    TeamSecretStore(team.database, Seal("red", ["k" * 32])).set("key", "value", "ada")


@contextmanager
def connection(database: Database, **settings: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.url) as found:
        for name, value in settings.items():
            found.execute("SELECT set_config(%s, %s, true)", (f"app.{name}", value))
        yield found


def count(connected: psycopg.Connection[Any], table: str) -> int:
    row = connected.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_a_query_without_a_filter_sees_only_the_rows_of_its_team(
    database: Database, red: TeamFixture, blue: TeamFixture
) -> None:
    fill(red)
    with connection(database, team="red") as connected:
        assert {table: count(connected, table) for table in TABLES} == dict.fromkeys(TABLES, 1)
    for settings in ({"team": "blue"}, {"team": ""}, {}, {"operator": "on"}):
        with connection(database, **settings) as connected:
            assert {table: count(connected, table) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_the_stores_of_a_team_find_nothing_of_another_even_without_their_filters(
    database: Database, red: TeamFixture, blue: TeamFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(red)
    member = red.members.list()[0]
    access, text = red.access.create(NewAccess(member.id, "password", "a browser"))
    statements = {
        name: re.sub(rb"\b(\w\.)?team = %\(team\)s AND ", b"", sql)
        for name, sql in read_statements("retinue.teams", "teams.sql").items()
    }
    assert b"team = " not in statements["find_access"]
    monkeypatch.setattr("retinue.teams.database._statements", lambda: statements)

    assert blue.members.list() == ()
    assert blue.members.find(member.id) is None
    assert blue.access.find([access.id]) == ()
    limits = SignInLimits()
    assert blue.access.check(text, limits) is None
    assert red.access.check(text, limits) is not None
    assert blue.access.end(access.id) is False
    assert red.access.check(text, limits) is not None


@pytest.mark.parametrize("table", TABLES)
def test_rows_cannot_be_written_or_moved_to_another_team(database: Database, red: TeamFixture, table: str) -> None:
    fill(red)
    with connection(database, team="red") as connected, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connected.execute(f"UPDATE {table} SET team = 'blue'".encode())
    with connection(database, team="blue") as connected:
        assert connected.execute(f"DELETE FROM {table}".encode()).rowcount == 0


def test_every_table_with_a_team_has_a_policy_that_binds_its_owner_too(database: Database) -> None:
    with psycopg.connect(database.url) as connected:
        rows = connected.execute(
            """
            SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
                (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid) > 0
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND (
                c.relname IN ('team', 'organisation')
                OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'team'))
            """
        ).fetchall()
    assert {name for name, *_ in rows} >= {*TABLES, "team", "organisation"}
    assert [name for name, forced, has_policy in rows if not (forced and has_policy)] == []


def test_the_names_of_teams_are_visible_to_the_team_and_to_the_operator(database: Database) -> None:
    with connection(database) as connected:
        assert (count(connected, "team"), count(connected, "organisation")) == (0, 0)
    with connection(database, team="red") as connected:
        assert (count(connected, "team"), count(connected, "organisation")) == (1, 1)
        assert connected.execute("UPDATE team SET name = 'x'").rowcount == 0
    assert [team.id for team in TeamRegistry(database.server, database.clock).list()] == ["blue", "red"]


def test_a_role_that_bypasses_the_policies_is_refused() -> None:
    server = PostgresServer(create_database())
    try:
        with pytest.raises(ConfigError, match="row-level security"):
            TeamDatabase(server, "red", SetClock()).check()
    finally:
        server.close()


def test_an_owner_of_the_tables_who_is_no_superuser_is_bound_too(database: Database, red: TeamFixture) -> None:
    fill(red)
    admin_url = create_database(empty=True)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION IF NOT EXISTS vector")
        admin.execute("DROP ROLE IF EXISTS retinue_owner")
        admin.execute("CREATE ROLE retinue_owner LOGIN")
        admin.execute("GRANT ALL ON SCHEMA public TO retinue_owner")
    head, _, rest = admin_url.partition("://")
    server = PostgresServer(f"{head}://retinue_owner:@{rest.partition('@')[2]}")
    try:
        assert server.migrate().pending == ()
        registry = TeamRegistry(server, database.clock)
        for name in ("red", "blue"):
            registry.create(name, name, "acme", "Acme")
        owned = {
            name: TeamFixture(TeamDatabase(server, name, database.clock), database.clock) for name in ("red", "blue")
        }
        owned["red"].members.add(NewMember("ada@example.org", "Ada", TeamRole.OWNER), TeamRole.OWNER)
        assert len(owned["red"].members.list()) == 1
        assert owned["blue"].members.list() == ()
        with server.connection() as connected:
            assert connected.execute("SELECT count(*) FROM team_member").fetchone() == (0,)
    finally:
        server.close()
