"""PostgreSQL as the storage of a team: connections and migrations. Drivers of single stores are beside their ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from retinue.core.errors import StorageError

if TYPE_CHECKING:
    from retinue.storage.postgres.server import PostgresServer
    from retinue.storage.postgres.team_storage import TeamStorage

Role = Literal["all", "front", "worker"]
"""What a gateway does for a team: `front` accepts clients and messages, `worker` runs turns, `all` does both."""

DEFAULT_TEAM = "default"
"""The team of a home without `teams.team`."""


@contextmanager
def open_server(url: str, team: str | None = None) -> Iterator[PostgresServer]:
    """Open the connections to a database for the time of the block; they see the rows of `team`, if it is given."""
    with _needs_extra():
        from retinue.storage.postgres.server import PostgresServer
    server = PostgresServer(url, team=team)
    try:
        yield server
    finally:
        server.close()


def open_team(url: str, team: str | None) -> TeamStorage:
    """Return the storage of a team, which this process opens once."""
    with _needs_extra():
        from retinue.storage.postgres.team_storage import open_team_storage
    return open_team_storage(url, team or DEFAULT_TEAM)


@contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise StorageError(
            "PostgreSQL needs the extra 'postgres'. Install it: pip install 'retinue[postgres]'"
        ) from None
