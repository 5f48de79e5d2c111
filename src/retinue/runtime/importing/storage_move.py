"""Moving what a home stores to PostgreSQL, to another database, or back to files. The source is only read.

A move can be repeated: what is there already is skipped. Memory indexes are not moved, because they are built again
from the notes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import count, islice

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError, UsageError
from retinue.core.keys import AgentId, SessionId, parse_agent_id
from retinue.runtime.agents.workspace import open_session_files, open_sessions
from retinue.runtime.home import Home
from retinue.sessions.entries import EntryId, Header, TranscriptEntry
from retinue.sessions.jsonl.codec import encode_line
from retinue.sessions.protocol import StoredSessions
from retinue.sessions.store import SessionStore
from retinue.storage.database import DATABASE_NAME, Database, SqliteDatabase, Value
from retinue.storage.database.database_file import put_aside
from retinue.storage.database.state_schema import STATE_SCHEMA
from retinue.storage.postgres import DEFAULT_TEAM
from retinue.storage.process_locks import find_instance

FILES = "files"
"""The target of a move back."""
BATCH = 500
_ORDERED = frozenset({"approvals", "command_rules", "hook_runs", "job_runs", "jobs", "webhooks"})
"""Tables that are read in the order in which their rows were added."""


class MoveResult(Struct, rename="camel"):
    """What was copied, and what was there before; `rows` are counted by table."""

    to: str
    sessions: int = 0
    archives: int = 0
    skipped: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    verified: bool = False


class Storage(Struct, frozen=True):
    """One place that stores a home. Its jobs may be in a file of their own."""

    database: Database
    jobs: Database
    sessions: Callable[[AgentId], StoredSessions]
    in_files: bool

    def database_of(self, table: str) -> Database:
        return self.jobs if table in ("jobs", "job_runs") else self.database


def move_storage(home: Home, to: str, *, verify: bool = False) -> MoveResult:
    """Copy sessions and state to another place; with `verify`, compare both by counts and hashes afterwards."""
    if find_instance(home.paths) is not None:
        raise UsageError("A gateway is running on this home. Stop it first: retinue gateway stop.")
    if to == FILES and home.team_storage is None:
        raise UsageError("Everything is kept in files already: `storage.url` is not set.")
    done = MoveResult(to if to == FILES else "postgresql")
    with _open_source(home) as source, _open_target(home, to) as target:
        for agent in _find_agents(home):
            _copy_sessions(source.sessions(agent), target.sessions(agent), done)
        for table, columns in list_tables().items():
            done.rows[table] = _copy_table(source, target, table, columns)
        if verify:
            _verify(home, source, target)
            done.verified = True
    return done


@contextmanager
def _open_source(home: Home) -> Iterator[Storage]:
    with closing(home.open_state()) as database, closing(home.open_state(home.job_database)) as jobs:
        yield Storage(database, jobs, partial(open_sessions, home), home.team_storage is None)


@contextmanager
def _open_target(home: Home, to: str) -> Iterator[Storage]:
    if to == FILES:
        begun = home.paths.path / "storage-move.unfinished"
        if not begun.exists():
            _put_files_aside(home)
            begun.touch(mode=0o600)
        with (
            closing(SqliteDatabase(home.paths.path / DATABASE_NAME, durable=True)) as database,
            closing(SqliteDatabase(home.job_database, durable=True)) as jobs,
        ):
            yield Storage(database, jobs, partial(open_session_files, home), True)
        begun.unlink()
        return
    from retinue.sessions.postgres.store import PostgresSessions
    from retinue.storage.postgres.state import PostgresDatabase
    from retinue.storage.postgres.team_storage import TeamStorage

    own = home.team_storage
    with closing(TeamStorage(to, home.config.teams.team or DEFAULT_TEAM)) as team:
        team.server.check_schema()
        if own is not None and own.url == to:
            raise UsageError("This is the database that the home uses already. Name another one.")
        state = PostgresDatabase(team.connection)
        yield Storage(state, state, lambda agent: PostgresSessions(team, agent, home.clock), False)


def _put_files_aside(home: Home) -> None:
    """Rename the files of the home that are older than what its database has."""
    for path in dict.fromkeys((home.paths.path / DATABASE_NAME, home.job_database)):
        if path.exists():
            put_aside(path, "before-move")
    for agent in _find_agents(home):
        folder = home.paths.sessions(agent)
        if folder.is_dir():
            number = next(n for n in count(1) if not folder.with_name(f"sessions.before-move.{n}").exists())
            folder.rename(folder.with_name(f"sessions.before-move.{number}"))


def _find_agents(home: Home) -> tuple[AgentId, ...]:
    """Return the configured agents, and those that have a folder and were removed from the configuration."""
    folders = home.paths.path / "agents"
    names = sorted(path.name for path in folders.iterdir() if (path / "sessions").is_dir()) if folders.is_dir() else ()
    return tuple(dict.fromkeys((*home.config.agents.ids, *map(parse_agent_id, names))))


def _copy_sessions(source: StoredSessions, target: StoredSessions, done: MoveResult) -> None:
    if not source.exists:
        return
    for session in source.list():
        if target.peek(session.key) is not None:
            done.skipped += 1
            continue
        target.adopt(_header_of(source, session.id), _with_ids(source.entries(session.id)))
        done.sessions += 1
    known = {archive.name for archive in target.archives()} if target.exists else set()
    for archive in source.archives():
        found, entries = source.read_archive(archive)
        if archive.name in known or found is None or found.key is None:
            done.skipped += 1
            continue
        target.adopt(found, _with_ids(entries), archive)
        done.archives += 1
    if isinstance(target, SessionStore) and target.exists:
        target.list()
        target.rebuild_usage()
    if target.exists:
        target.add_usage(source.usage())


def _with_ids(entries: Iterable[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Give entries of old transcripts the ids under which they are read: each follows the one before."""
    last: EntryId | None = None
    for number, entry in enumerate(entries):
        if not entry.id:
            entry = replace(entry, id=EntryId(f"#{number}"), parent=last)
        last = entry.id
        yield entry


@cache
def list_tables() -> dict[str, tuple[str, ...]]:
    """Return the tables of the state and their columns."""
    with closing(sqlite3.connect(":memory:")) as base:
        for statement in (each for version in STATE_SCHEMA for each in version):
            base.execute(statement)
        names = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: tuple(row[1] for row in base.execute(f"PRAGMA table_info({name})")) for name in names}


def _read_table(storage: Storage, table: str, columns: Sequence[str]) -> Iterator[tuple[Value, ...]]:
    order = "rowid" if table in _ORDERED else ", ".join(map(str, range(1, len(columns) + 1)))
    listed = ", ".join(f'"{column}"' for column in columns)
    rows = storage.database_of(table).read(f"SELECT {listed} FROM {table} ORDER BY {order}")  # noqa: S608 - our own tables
    return (tuple(row) for row in rows)


def _copy_table(source: Storage, target: Storage, table: str, columns: Sequence[str]) -> int:
    """Copy the rows that the target lacks; return how many the source has."""
    listed, marks = ", ".join(f'"{column}"' for column in columns), ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({listed}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own tables
    rows, copied = _read_table(source, table, columns), 0
    while batch := tuple(islice(rows, BATCH)):
        with target.database_of(table).change(durable=True) as base:
            base.executemany(statement, batch)
            if "id" in columns and isinstance(batch[-1][columns.index("id")], int) and not target.in_files:
                # The next row gets a number after those that were copied.
                base.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"  # noqa: S608
                )
        copied += len(batch)
    return copied


def _header_of(store: StoredSessions, session: SessionId) -> Header:
    header, _ = store.read(session)
    if header is None:
        raise StorageError(f"The transcript {session} has no header. Check it: retinue sessions check.")
    return replace(header, id=session)


def _verify(home: Home, source: Storage, target: Storage) -> None:
    """Raise `StorageError` unless everything of the source is in the target."""
    wrong = []
    for table, columns in list_tables().items():
        mine, theirs = (_digest(map(repr, _read_table(each, table, columns))) for each in (source, target))
        if mine != theirs:
            wrong.append(f"table {table}: {mine[0]} rows in the source, {theirs[0]} in the copy")
    for agent in _find_agents(home):
        first, second = source.sessions(agent), target.sessions(agent)
        for session in first.list() if first.exists else ():
            mine, theirs = (_digest(_lines(each, session.id)) for each in (first, second))
            if mine != theirs:
                wrong.append(f"session {session.key}: {mine[0]} entries in the source, {theirs[0]} in the copy")
        if first.exists and not set(first.usage()) <= set(second.usage()):
            wrong.append(f"usage of {agent}")
        if first.exists and second.exists:
            there = {archive.name: archive for archive in second.archives()}
            for archive in first.archives():
                header, entries = first.read_archive(archive)
                if header is None or header.key is None:
                    continue
                copy = there.get(archive.name)
                mine = _digest(_encoded(header, entries))
                theirs = _digest(_encoded(*second.read_archive(copy))) if copy is not None else (0, 0)
                if mine != theirs:
                    wrong.append(f"archive {archive.name} of {agent}")
    if wrong:
        raise StorageError(
            f"The copy differs from the source in {len(wrong)} places: {'; '.join(wrong[:5])}. The source is "
            "unchanged. Empty the target, or use another one, and repeat the move."
        )


def _lines(store: StoredSessions, session: SessionId) -> Iterator[str]:
    try:
        yield from _encoded(_header_of(store, session), store.entries(session))
    except StorageError:
        return


def _encoded(header: Header | None, entries: Iterable[TranscriptEntry]) -> Iterator[str]:
    if header is not None:
        yield encode_line(header).decode()
    for entry in _with_ids(entries):
        yield encode_line(entry).decode()


def _digest(lines: Iterable[str]) -> tuple[int, int]:
    """Return the number of lines, and a hash that does not depend on their order."""
    number, total = 0, 0
    for line in lines:
        number += 1
        total += int.from_bytes(hashlib.sha256(line.encode("utf-8", "surrogatepass")).digest(), "big")
    return number, total % 2**256
