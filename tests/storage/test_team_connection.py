"""What a process learns if PostgreSQL is slow or a connection ends in the middle of something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress

import pytest

from retinue.core.errors import StorageError
from retinue.storage.postgres.server import PostgresUnavailable
from retinue.storage.postgres.state import PostgresDatabase
from retinue.storage.postgres.team_storage import TeamConnection, TeamStorage
from tests.postgres import create_team_database
from tests.storage.cut_connections import CuttingProxy

pytestmark = pytest.mark.slow

INSERT = "INSERT INTO heartbeat_starts (agent, at) VALUES (?, ?)"
COUNT = "SELECT count(*) FROM heartbeat_starts"


@pytest.fixture
def url() -> str:
    return create_team_database("red")


@pytest.fixture
def connection(url: str) -> Iterator[TeamConnection]:
    with closing(TeamConnection(url, "red")) as connection:
        yield connection


def test_a_statement_that_takes_too_long_is_an_error_of_the_storage(connection: TeamConnection) -> None:
    connection.run(b"SET statement_timeout = '20ms'")
    for act in (
        lambda: connection.run(b"SELECT pg_sleep(5)"),
        lambda: PostgresDatabase(connection).read("SELECT pg_sleep(5)"),
    ):
        with pytest.raises(StorageError, match="too long"):
            act()
    assert connection.run(b"SELECT 1") == [(1,)]


def test_a_change_with_a_failed_statement_is_not_taken_for_stored(connection: TeamConnection) -> None:
    database = PostgresDatabase(connection)
    with pytest.raises(PostgresUnavailable, match="Nothing was stored"):
        _insert_and_go_on_after_an_error(database)
    assert database.read(COUNT)[0][0] == 0
    _insert(database)
    assert database.read(COUNT)[0][0] == 1


def _insert_and_go_on_after_an_error(database: PostgresDatabase) -> None:
    with database.change() as base:
        base.execute(INSERT, ("main", "now"))
        with suppress(StorageError):
            base.execute("SELECT 1 FROM nothing")


@pytest.mark.parametrize(
    "rows", [pytest.param(1, id="after the server did it"), pytest.param(0, id="before it read it")]
)
def test_the_outcome_of_a_commit_is_known_if_the_connection_is_cut(url: str, rows: int) -> None:
    with (
        CuttingProxy(url, b"COMMIT", forwarding=rows == 1) as proxy,
        closing(TeamConnection(proxy.url, "red")) as connection,
    ):
        database = PostgresDatabase(connection)
        with nullcontext() if rows else pytest.raises(PostgresUnavailable):
            _insert(database)
        assert proxy.cuts == 1
        assert database.read(COUNT)[0][0] == rows


def test_a_server_that_is_silent_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.storage.postgres.server.SILENCE_SECONDS", 0.3)
    with (
        CuttingProxy(url, b"pg_sleep", mute=True) as proxy,
        closing(TeamConnection(proxy.url, "red")) as connection,
    ):
        database = PostgresDatabase(connection)
        with pytest.raises(StorageError, match="too long"):
            database.read("SELECT pg_sleep(0)")
        assert proxy.cuts == 1
        _insert(database)
        assert database.read(COUNT)[0][0] == 1


def test_a_server_that_is_silent_is_not_waited_for_with_a_lease(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.storage.postgres.server.SILENCE_SECONDS", 0.3)
    with CuttingProxy(url, b"INSERT INTO lease", mute=True) as proxy, closing(TeamStorage(proxy.url, "red")) as team:
        with pytest.raises(StorageError, match="too long"):
            team.leases.lease("agent:main:main").try_acquire()
        assert proxy.cuts == 1
        assert team.leases.lease("agent:main:main").try_acquire()


def _insert(database: PostgresDatabase) -> None:
    with database.change() as base:
        base.execute(INSERT, ("main", "now"))
