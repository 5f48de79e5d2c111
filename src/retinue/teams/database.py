"""The database of teams: transactions that see the rows of one team, and the registry of organisations and teams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

from msgspec import Struct, convert
from psycopg.rows import dict_row

from retinue.core.clock import Clock
from retinue.core.errors import ConfigError, UsageError
from retinue.storage.postgres.server import Connection, PostgresServer, read_statements


@cache
def _statements() -> Mapping[str, bytes]:
    return read_statements("retinue.teams", "teams.sql")


class TeamTransaction:
    """A transaction that sees one team."""

    def __init__(self, connection: Connection, team: str) -> None:
        self._connection = connection
        self._team = team

    def run(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """Run a named statement; return its rows."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(_statements()[statement], {**values, "team": self._team})
            return cursor.fetchall() if cursor.description is not None else []


class TeamDatabase:
    """The rows of one team. Any thread may use it."""

    def __init__(self, server: PostgresServer, team: str, clock: Clock) -> None:
        self.server = server
        self.team = team
        self.clock = clock

    @contextmanager
    def transaction(self) -> Iterator[TeamTransaction]:
        with self.server.connection() as connection, connection.transaction():
            found = TeamTransaction(connection, self.team)
            found.run("become")
            yield found

    def now(self) -> datetime:
        return self.clock.now()

    def check(self) -> TeamRecord:
        """Return the team; raise `ConfigError` if it does not exist or the database would not keep teams apart."""
        self.server.check_schema()
        with self.transaction() as transaction:
            if transaction.run("find_bypass"):
                raise ConfigError(
                    "The role in `storage.url` bypasses row-level security, so teams would not be kept apart. "
                    "Use a role that is neither a superuser nor has BYPASSRLS; docs/teams.md describes it."
                )
            rows = transaction.run("find_team", id=self.team)
        if not rows:
            raise ConfigError(
                f"There is no team '{self.team}' (teams.team). Create it: retinue teams create {self.team}"
            )
        return convert(rows[0], TeamRecord)


class TeamRecord(Struct, frozen=True):
    """A team and its organisation."""

    id: str
    name: str
    organisation: str
    organisation_name: str
    created_at: datetime


class TeamRegistry:
    """The names of all organisations and teams, for the operator of the database."""

    def __init__(self, server: PostgresServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    @contextmanager
    def _transaction(self) -> Iterator[TeamTransaction]:
        with self._server.connection() as connection, connection.transaction():
            found = TeamTransaction(connection, "")
            found.run("become_operator")
            yield found

    def list(self) -> tuple[TeamRecord, ...]:
        with self._transaction() as transaction:
            return tuple(convert(row, TeamRecord) for row in transaction.run("list_teams"))

    def create(self, team: str, name: str, organisation: str, organisation_name: str) -> TeamRecord:
        """Create a team, and its organisation if there is none yet."""
        now = self._clock.now()
        with self._transaction() as transaction:
            transaction.run("add_organisation", id=organisation, name=organisation_name, now=now)
            if not transaction.run("add_team", id=team, organisation=organisation, name=name, now=now):
                raise UsageError(f"There is a team '{team}' already. `retinue teams list` shows all teams.")
            return convert(transaction.run("find_team", id=team)[0], TeamRecord)
