"""PostgreSQL as the storage of a team: connections and migrations. Drivers of single stores are beside their ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retinue.core.errors import StorageError

if TYPE_CHECKING:
    from retinue.storage.postgres.server import PostgresServer


@contextmanager
def open_server(url: str) -> Iterator[PostgresServer]:
    """Open the connections to a database for the time of the block."""
    try:
        from retinue.storage.postgres.server import PostgresServer  # needs the extra
    except ImportError:
        raise StorageError(
            "PostgreSQL needs the extra 'postgres'. Install it: pip install 'retinue[postgres]'"
        ) from None
    server = PostgresServer(url)
    try:
        yield server
    finally:
        server.close()
