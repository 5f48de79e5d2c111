"""The database of a team as one process uses it: a connection for short statements, and the leases."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import RowFactory, tuple_row

from retinue.storage.postgres.leases import PostgresLeases
from retinue.storage.postgres.server import (
    CONNECT_SECONDS,
    STATEMENT_SECONDS,
    Connection,
    ImpatientConnection,
    PostgresServer,
    PostgresUnavailable,
    StatementTooSlow,
    translated_errors,
)

log = logging.getLogger(__name__)

OUTCOME_SECONDS = 2.0
"""How long it is waited for the end of a transaction whose connection was lost."""

R = TypeVar("R")

IDLE_SECONDS = 5
"""A transaction whose process does nothing for so long is rolled back."""

Values = Mapping[str, Any] | Sequence[Any]


class TeamConnection:
    """One connection that sees the rows of one team. Any thread may use it, one at a time.

    Each statement is a round trip in the calling thread, like those of SQLite. A lost connection is opened again at the
    next use. It must not go through a pooler of transactions, because the team is set once.
    """

    def __init__(self, url: str, team: str) -> None:
        self.team = team
        self._url = url
        self._lock = RLock()
        self._connection: Connection | None = None
        self._in_transaction = False
        self.round_trips = 0

    def run(self, sql: bytes, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows. It must bear to run twice: it is repeated if the connection was lost."""
        return self.run_for(tuple_row, sql, values)

    def run_for(self, row_factory: RowFactory[R], sql: bytes, values: Values | None = None) -> list[R]:
        """Run a statement as `run` does, with rows of another kind."""
        with self._lock:
            try:
                return self._run(sql, values, row_factory)
            except StatementTooSlow:
                raise  # so that a server which does not answer is waited for only once
            except PostgresUnavailable:
                if self._in_transaction or self._connection is None or not self._connection.closed:
                    raise
                return self._run(sql, values, row_factory)

    def _run(self, sql: bytes, values: Values | None, row_factory: RowFactory[R]) -> list[R]:
        with translated_errors():
            self.round_trips += 1
            done = self._current().cursor(row_factory=row_factory).execute(sql, values)
            return done.fetchall() if done.description is not None else []

    @contextmanager
    def transaction(self, lock: LiteralString = "") -> Iterator[Connection]:
        """Lend the connection in a transaction, which ends with the block. A transaction within one is part of it.

        `lock` is a statement that the transaction begins with, in the same round trip.
        """
        with self._lock, translated_errors():
            if self._in_transaction:
                yield self._current()
                return
            connection, number = self._begin(f"BEGIN; {lock}; SELECT pg_current_xact_id()::text")
            self._in_transaction = True
            try:
                yield connection
                self._commit(connection, number)
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def _begin(self, sql: LiteralString) -> tuple[Connection, str]:
        """Begin a transaction; return its number as well, by which its outcome is found if the connection is lost."""
        connection = self._current()
        self.round_trips += 1
        try:
            done = connection.execute(sql)
        except psycopg.OperationalError as error:
            if not connection.closed or isinstance(error, psycopg.errors.QueryCanceled):
                raise
            connection = self._current()  # it was lost since the last use
            done = connection.execute(sql)
        while done.nextset():
            pass
        return connection, str(done.fetchall()[0][0])

    def _commit(self, connection: Connection, number: str) -> None:
        self.round_trips += 1
        try:
            done = connection.execute("COMMIT")
        except psycopg.OperationalError:
            if not connection.closed or not self._was_committed(number):
                raise
            return
        if done.statusmessage == "ROLLBACK":
            # PostgreSQL does that without an error if a statement failed and the block went on.
            raise PostgresUnavailable("Nothing was stored, because a statement of the change failed. Try again.")

    def _was_committed(self, number: str) -> bool:
        """Return whether a transaction was committed whose connection was lost before the server answered."""
        until = time.monotonic() + OUTCOME_SECONDS
        self._connection = self._connect()
        while True:
            ((outcome,),) = self._connection.execute("SELECT pg_xact_status(%s::xid8)", (number,)).fetchall()
            if outcome != "in progress":
                return bool(outcome == "committed")
            if time.monotonic() > until:
                raise PostgresUnavailable(
                    "The connection to PostgreSQL was lost, and it is not known whether the last change was stored. "
                    "Check that the server is running, and look before you repeat the change."
                )
            time.sleep(OUTCOME_SECONDS / 20)

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _current(self) -> Connection:
        if self._connection is None or (self._connection.closed and not self._in_transaction):
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> Connection:
        connection = ImpatientConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=int(CONNECT_SECONDS),
            application_name=f"retinue {os.getpid()}",
            keepalives_idle=STATEMENT_SECONDS,
            keepalives_interval=1,
            keepalives_count=3,
            # A server that is gone without a word must not stop this process for minutes.
            tcp_user_timeout=STATEMENT_SECONDS * 1000,
        )
        try:
            connection.execute(
                "SELECT set_config('app.team', %s, false), set_config('statement_timeout', %s, false), "
                # A process that is stopped within a transaction must not hold its locks.
                "set_config('idle_in_transaction_session_timeout', %s, false)",
                (self.team, f"{STATEMENT_SECONDS}s", f"{IDLE_SECONDS}s"),
            )
        except BaseException:
            connection.close()
            raise
        return connection


class TeamStorage:
    """Everything with which this process uses the database of a team."""

    def __init__(self, url: str, team: str) -> None:
        self.url = url
        self.team = team
        self.server = PostgresServer(url, impatient=True)
        self.connection = TeamConnection(url, team)
        self.leases = PostgresLeases(self.server, team)

    def close(self) -> None:
        """Release the leases and close the connections."""
        self.leases.close()
        self.connection.close()
        self.server.close()


_opened: dict[tuple[str, str], TeamStorage] = {}


def open_team_storage(url: str, team: str) -> TeamStorage:
    """Return the storage of a team, once per process; raise `SchemaOutdated` if its tables are of another version."""
    found = _opened.get((url, team))
    if found is None:
        found = TeamStorage(url, team)
        try:
            found.server.check_schema()
        except BaseException:
            found.close()
            raise
        _opened[url, team] = found
    return found


# Threads of a pool that still run when the interpreter ends delay it.
@atexit.register
def close_team_storages() -> None:
    """Release the leases and close the connections of this process."""
    while _opened:
        _opened.popitem()[1].close()
