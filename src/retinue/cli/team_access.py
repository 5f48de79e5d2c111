"""The database of teams, for the commands that use it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.runtime.home import Home
    from retinue.storage.postgres.server import PostgresServer
    from retinue.teams.database import TeamDatabase


@contextmanager
def open_database(home: Home) -> Iterator[PostgresServer]:
    """Open the database of `storage.url`; raises `ConfigError` if there is none."""
    from retinue.core.errors import ConfigError
    from retinue.security.secrets import Secrets
    from retinue.storage.postgres import open_server

    url = home.config.storage.url
    if url is None:
        raise ConfigError("Teams need PostgreSQL. Set `storage.url`; docs/teams.md describes every step.")
    with open_server(Secrets(home.environment, home.redactor).resolve(url)) as server:
        yield server


@contextmanager
def open_team(home: Home) -> Iterator[TeamDatabase]:
    """Open the rows of the team that a home serves."""
    from retinue.core.errors import ConfigError

    team = home.config.teams.team
    if team is None:
        raise ConfigError("This home serves no team. Set one: retinue config set teams.team NAME")
    with open_database(home) as server:
        from retinue.teams.database import TeamDatabase  # needs the extra `postgres`

        database = TeamDatabase(server, team, home.clock)
        database.check()
        yield database
