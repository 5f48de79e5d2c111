"""The SQLite tables of the index, and how connections to it are opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.memory.store.protocol import IndexDamaged, IndexTooNew, IndexUnusable
from retinue.storage.files import DiskFull, NoPermission, ReadOnly

TOKENIZER = "porter unicode61 remove_diacritics 2"


SCHEMA_VERSION = 1
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

_REBUILD = "Run `retinue memory index --force` to rebuild it"
_MEANINGS: tuple[tuple[str, type[IndexUnusable] | type[DiskFull] | type[ReadOnly] | type[NoPermission], str], ...] = (
    ("disk is full", DiskFull, "could not grow: the disk is full. Free some space and try again"),
    ("disk I/O error", DiskFull, "could not be written. Check the disk's free space and health"),
    ("readonly database", ReadOnly, "is read-only. Make it writable or set another `store.path`"),
    ("unable to open", NoPermission, "cannot be opened. Check its owner and permissions"),
    ("malformed", IndexDamaged, f"is damaged. {_REBUILD}"),
    ("not a database", IndexDamaged, f"is not a database. {_REBUILD}"),
    ("no such table", IndexDamaged, f"lacks a table. {_REBUILD}"),
    ("no such fts5 table", IndexDamaged, f"lacks a table. {_REBUILD}"),
    ("no such column", IndexDamaged, f"lacks a column. {_REBUILD}"),
    ("vtable constructor failed", IndexDamaged, f"is damaged. {_REBUILD}"),
    ("fts5: ", IndexDamaged, f"is damaged. {_REBUILD}"),
    ("locked", IndexUnusable, "is locked by another process. Try again in a moment"),
)


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of the index."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise TimeoutError("the search took too long") from error
        for words, kind, meaning in _MEANINGS:
            if words in str(error):
                raise kind(f"The memory index {path} {meaning}.") from error
        raise IndexUnusable(f"The memory index {path} cannot be used: {error}.") from error


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
    """Create the tables if there are none; raise `IndexTooNew` for a newer schema. `epoch` identifies this database."""
    with translated_errors(path):
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION:
            raise IndexTooNew(
                f"The memory index {path} was written by a newer version of Retinue. Update Retinue, or delete the "
                "file; it is rebuilt from the notes."
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                # Not `executescript`, which commits first: two processes may get here at the same time.
                for statement in _statements(SCHEMA):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('epoch', ?), ('revision', '0')", (epoch,))
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
