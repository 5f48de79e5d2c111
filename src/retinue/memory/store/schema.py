"""The SQLite tables of the index, and how connections to it are opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.core.errors import StorageError
from retinue.memory.store.protocol import IndexDamaged, IndexUnusable
from retinue.storage.files import DiskFull, NoPermission, ReadOnly

TOKENIZER = "porter unicode61 remove_diacritics 2"


SCHEMA_VERSION = 1
"""Tables that are only added keep the version, because another version would embed all notes again."""
BUSY_SECONDS = 30.0
_FILE_MODE = 0o600

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    day TEXT,
    chunks INTEGER NOT NULL,
    words INTEGER NOT NULL
);

-- Ids are never reused, so that cached facts about one chunk are never applied to another.
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files(id),
    ordinal INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    hash TEXT NOT NULL,
    words INTEGER NOT NULL,
    origin TEXT NOT NULL,
    context TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX chunks_by_file ON chunks(file, ordinal);
-- Chunks that have no vector yet.
CREATE TABLE unembedded (chunk INTEGER PRIMARY KEY, hash TEXT NOT NULL);
CREATE INDEX unembedded_by_hash ON unembedded(hash);

CREATE TABLE embedding_cache (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    provider_key TEXT NOT NULL,
    hash TEXT NOT NULL,
    dims INTEGER NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (provider, model, provider_key, hash)
);
CREATE TABLE signatures (embedding INTEGER PRIMARY KEY, bits BLOB NOT NULL);

-- The vectors of each line of the text with one byte per dimension: enough to order lines.
CREATE TABLE line_vectors (embedding INTEGER PRIMARY KEY, codes BLOB NOT NULL);

CREATE TABLE chunk_vectors (chunk INTEGER PRIMARY KEY, embedding INTEGER NOT NULL);
CREATE INDEX chunk_vectors_by_embedding ON chunk_vectors(embedding);

CREATE VIRTUAL TABLE chunks_fts USING fts5(
    text, context, content='chunks', content_rowid='id', tokenize='TOKENIZER'
);
CREATE VIRTUAL TABLE chunks_terms USING fts5vocab(chunks_fts, row);

-- Character pairs for scripts without spaces, because the tokenizer above would make whole sentences one word.
CREATE TABLE chunk_pairs (chunk INTEGER PRIMARY KEY, pairs TEXT NOT NULL);
CREATE VIRTUAL TABLE pairs_fts USING fts5(
    pairs, content='chunk_pairs', content_rowid='chunk', tokenize='unicode61 remove_diacritics 0', detail='none'
);

CREATE TRIGGER chunk_added AFTER INSERT ON chunks BEGIN
    INSERT INTO chunks_fts(rowid, text, context) VALUES (new.id, new.text, new.context);
END;
CREATE TRIGGER chunk_removed AFTER DELETE ON chunks BEGIN
    INSERT INTO chunks_fts(chunks_fts, rowid, text, context) VALUES ('delete', old.id, old.text, old.context);
    DELETE FROM chunk_vectors WHERE chunk = old.id;
    DELETE FROM unembedded WHERE chunk = old.id;
    DELETE FROM chunk_pairs WHERE chunk = old.id;
END;
CREATE TRIGGER pairs_added AFTER INSERT ON chunk_pairs BEGIN
    INSERT INTO pairs_fts(rowid, pairs) VALUES (new.chunk, new.pairs);
END;
CREATE TRIGGER pairs_removed AFTER DELETE ON chunk_pairs BEGIN
    INSERT INTO pairs_fts(pairs_fts, rowid, pairs) VALUES ('delete', old.chunk, old.pairs);
END;
""".replace("TOKENIZER", TOKENIZER)

ADDED_TABLES = """
-- Chunks in which the owner gives a standing instruction or states a preference.
CREATE TABLE IF NOT EXISTS standing_chunks (chunk INTEGER PRIMARY KEY, kind TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS standing_removed AFTER DELETE ON chunks BEGIN
    DELETE FROM standing_chunks WHERE chunk = old.id;
END;
"""


_REBUILD = "Run `retinue memory index --force` to rebuild it"
_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_FULL: (DiskFull, "could not grow: the disk is full. Free some space and try again"),
    sqlite3.SQLITE_IOERR: (DiskFull, "could not be written. Check the disk's free space and health"),
    sqlite3.SQLITE_READONLY: (ReadOnly, "is read-only. Make it writable or set another `store.path`"),
    sqlite3.SQLITE_CANTOPEN: (NoPermission, "cannot be opened. Check its owner and permissions"),
    sqlite3.SQLITE_CORRUPT: (IndexDamaged, f"is damaged. {_REBUILD}"),
    sqlite3.SQLITE_NOTADB: (IndexDamaged, f"is not a database. {_REBUILD}"),
    # The statements are fixed, so a generic error means that a table or column is missing or damaged.
    sqlite3.SQLITE_ERROR: (IndexDamaged, f"lacks a table or column. {_REBUILD}"),
    sqlite3.SQLITE_BUSY: (IndexUnusable, "is locked by another process. Try again in a moment"),
    sqlite3.SQLITE_LOCKED: (IndexUnusable, "is locked by another process. Try again in a moment"),
}
_PRIMARY_CODE = 0xFF
"""The low byte of an error code of SQLite is its kind, the rest a detail."""


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of the index."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        # Errors of the Python module itself, such as a closed connection, have no code.
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code == sqlite3.SQLITE_INTERRUPT:
            raise TimeoutError("the search took too long") from error
        kind, meaning = _MEANINGS.get(code, (IndexUnusable, f"cannot be used: {error}"))
        raise kind(f"The memory index {path} {meaning}.") from error


@contextmanager
def damage_reported() -> Iterator[None]:
    """Raise `IndexDamaged` if stored values cannot be decoded."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise IndexDamaged(f"The memory index contains invalid values: {error}.") from error


def open_connection(path: Path) -> sqlite3.Connection:
    """Open a connection that one thread at a time may use; transactions are explicit."""
    with translated_errors(path):
        # SQLite gives its side files the permissions of the database, so the file is created first with mode 0600.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE))
        except OSError as error:
            raise IndexUnusable(f"The memory index {path} cannot be opened: {error.strerror}.") from error
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -16000")
            connection.execute("PRAGMA temp_store = MEMORY")
        except sqlite3.DatabaseError:
            connection.close()
            raise
    return connection


def create_tables(connection: sqlite3.Connection, path: Path, epoch: str) -> None:
    """Create the tables in an empty database. `epoch` identifies this database.

    Raise `IndexDamaged` for an index of another version, because it can be rebuilt, and `IndexUnusable` for the
    database of another program, which must not be deleted.
    """
    with translated_errors(path):
        if _read_version(connection) == SCHEMA_VERSION and _has_added_tables(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _read_version(connection)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not tables:
                # Not `executescript`, which commits first: two processes may get here at the same time.
                for statement in _statements(SCHEMA):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('epoch', ?), ('revision', '0')", (epoch,))
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif not {"embedding_cache", "chunks_fts"} <= tables:
                raise IndexUnusable(f"{path} is the database of another program. Set another `store.path`.")
            elif version != SCHEMA_VERSION:
                raise IndexDamaged(
                    f"The memory index {path} has version {version} instead of {SCHEMA_VERSION}. {_REBUILD}."
                )
            for statement in _statements(ADDED_TABLES):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _has_added_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'standing_chunks'").fetchone() is not None


def _read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
