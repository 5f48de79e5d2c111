"""Connections to a PostgreSQL database, and its numbered migrations."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from typing import Any, TypeVar

import psycopg
from msgspec import Struct
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier
from psycopg_pool import ConnectionPool, PoolTimeout

from retinue.core.errors import StorageError

Connection = psycopg.Connection[TupleRow]
R = TypeVar("R")

MAX_CONNECTIONS = 8
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 10
"""A statement that takes longer fails. It runs in the calling thread, which may serve other sessions."""
SILENCE_SECONDS = STATEMENT_SECONDS + 1
"""A server that says nothing for so long, although it should have cancelled the statement, is given up."""
RETRY_SECONDS = 0.5
"""After this wait for a connection it is checked whether the server can be reached."""
_MIGRATION_LOCK = 0x52_65_74_69
"""The key of the advisory lock that lets one process migrate at a time."""


class PostgresUnavailable(StorageError):
    """The database cannot be reached, or refused a statement."""


class StatementTooSlow(PostgresUnavailable, TimeoutError):
    """The database cancelled a statement that took too long, or waited too long for another process."""


class SchemaOutdated(StorageError):
    """The tables of the database are older or newer than this version of Retinue."""


class Migration(Struct, frozen=True):
    """One step of the schema. Steps are only added, and a database only moves forward."""

    number: int
    name: str
    sql: bytes


class SchemaStatus(Struct, frozen=True):
    """The number of the last applied migration, and the names of those that are missing."""

    schema: int
    pending: tuple[str, ...]


class ImpatientConnection(psycopg.Connection[TupleRow]):
    """A connection that gives up a silent server: a stopped one cancels nothing, and its machine still answers."""

    def wait(self, gen: Generator[Any, Any, R], *arguments: Any, **options: Any) -> R:
        return super().wait(self._until_silence(gen), *arguments, **options)

    def _until_silence(self, gen: Generator[Any, Any, R]) -> Generator[Any, Any, R]:
        heard, ready = time.monotonic(), None
        while True:
            try:
                wanted = next(gen) if ready is None else gen.send(ready)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            ready = yield wanted
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_SECONDS:
                self.close()
                raise psycopg.errors.QueryCanceled("the server does not answer")


class PostgresServer:
    """A pool of connections to one database; any thread may use it. Connections are opened when they are needed.

    They see the rows of `team`; without it they see none of any team until a transaction names one. `impatient` ones
    are for short statements in threads that serve others, too.
    """

    def __init__(
        self, url: str, *, team: str | None = None, max_connections: int = MAX_CONNECTIONS, impatient: bool = False
    ) -> None:
        self.url = url
        self._team = team
        self._impatient = impatient
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise StorageError(
                "`storage.url` is not an address of PostgreSQL. Write it as postgresql://user:password@host:5432/database."
            ) from None
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=ImpatientConnection if impatient else psycopg.Connection[TupleRow],
            min_size=0,
            max_size=max_connections,
            timeout=CONNECT_SECONDS,
            # Its pauses between attempts double without a limit; after this time the next use begins anew.
            reconnect_timeout=CONNECT_SECONDS,
            kwargs={"autocommit": True, "connect_timeout": int(CONNECT_SECONDS), "application_name": "retinue"},
            configure=self._become,
            check=ConnectionPool.check_connection,
            open=False,
        )

    def _become(self, connection: Connection) -> None:
        if self._team is not None:
            connection.execute("SELECT set_config('app.team', %s, false)", (self._team,))
        if self._impatient:
            connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{STATEMENT_SECONDS}s",))

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in autocommit mode; errors of the server become errors of the storage."""
        with translated_errors(), ExitStack() as stack:
            if self._pool.closed:
                self._reach()
                self._pool.open()
            try:
                connection = stack.enter_context(self._pool.connection(RETRY_SECONDS))
            except PoolTimeout:
                # The pool waits in the same way for a server that refuses connections as for a connection in use.
                self._reach()
                connection = stack.enter_context(self._pool.connection())
            yield connection

    def _reach(self) -> None:
        """Connect once without the pool, which waits until its time is up and then does not know why it failed."""
        psycopg.connect(self.url, connect_timeout=int(CONNECT_SECONDS)).close()

    def migrate(self) -> SchemaStatus:
        """Apply the missing migrations, each in a transaction, while no other process does."""
        with self.connection() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
            try:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS schema_migration "
                    "(number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
                )
                applied = _read_applied(connection)
                for migration in read_migrations():
                    if migration.number not in applied:
                        with connection.transaction():
                            connection.execute(migration.sql)
                            connection.execute(
                                "INSERT INTO schema_migration (number, name) VALUES (%s, %s)",
                                (migration.number, migration.name),
                            )
                return _status(connection)
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))

    def status(self) -> SchemaStatus:
        with self.connection() as connection:
            return _status(connection)

    def check_schema(self) -> None:
        """Raise `SchemaOutdated` unless the tables are those of this version."""
        found = self.status()
        newest = read_migrations()[-1].number
        if found.pending:
            raise SchemaOutdated(
                f"The PostgreSQL database lacks {len(found.pending)} migrations. Run `retinue storage migrate`."
            )
        if found.schema > newest:
            raise SchemaOutdated(
                f"The PostgreSQL database was migrated by a newer Retinue (schema {found.schema}, this one knows "
                f"{newest}). Update Retinue."
            )

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        with self.connection() as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
            ).fetchall()
            counts = {}
            for (table,) in tables:
                counted = connection.execute(SQL("SELECT count(*) FROM {}").format(Identifier(table))).fetchone()
                counts[table] = counted[0] if counted else 0
            return counts

    def close(self) -> None:
        self._pool.close()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of PostgreSQL as errors of the storage that say what to do."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise StatementTooSlow("PostgreSQL needed too long for a statement. Try again; check its load.") from error
    except PoolTimeout as error:
        raise PostgresUnavailable(
            "PostgreSQL cannot be reached. Check `storage.url`, and that the server is running and accepts connections."
        ) from error
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).split()).rstrip("?.")
        raise PostgresUnavailable(
            f"PostgreSQL cannot be reached: {reason}. Check `storage.url`, and that the server is running."
        ) from error
    except psycopg.Error as error:
        reason = (error.diag.message_primary or str(error) or type(error).__name__).strip()
        raise PostgresUnavailable(
            f"PostgreSQL failed: {reason}. Check the server and its log, then try again."
        ) from error


def read_migrations() -> list[Migration]:
    """Return the migrations of this version, in order."""
    folder = files("retinue.storage.postgres") / "migrations"
    found = []
    for entry in folder.iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, entry.read_bytes()))
    return sorted(found, key=lambda migration: migration.number)


def read_statements(package: str, name: str) -> Mapping[str, bytes]:
    """Return the statements of an SQL file by their names; `-- name: …` begins each."""
    statements: dict[str, bytes] = {}
    for block in (files(package) / name).read_text(encoding="utf-8").split("-- name: ")[1:]:
        title, _, sql = block.partition("\n")
        statements[title.strip()] = sql.strip().encode()
    return statements


def _read_applied(connection: Connection) -> set[int]:
    return {number for (number,) in connection.execute("SELECT number FROM schema_migration")}


def _status(connection: Connection) -> SchemaStatus:
    there = connection.execute("SELECT to_regclass('schema_migration')").fetchone()
    applied = _read_applied(connection) if there and there[0] else set()
    pending = tuple(f"{known.number:04}_{known.name}" for known in read_migrations() if known.number not in applied)
    return SchemaStatus(max(applied, default=0), pending)
