"""The tables of an index in SQLite, and how a connection to them is opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.memory.errors import IndexDamaged, IndexTooNew, IndexUnusable
from retinue.memory.stems import TOKENIZER
from retinue.storage.files import DiskFull, NoPermission, ReadOnly

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

-- Ids are never used twice, so that what is remembered about one is never said of another.
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

-- A small number for each dimension of each line of the text: enough to order lines by.
CREATE TABLE line_vectors (embedding INTEGER PRIMARY KEY, codes BLOB NOT NULL);

CREATE TABLE chunk_vectors (chunk INTEGER PRIMARY KEY, embedding INTEGER NOT NULL);
CREATE INDEX chunk_vectors_by_embedding ON chunk_vectors(embedding);

CREATE VIRTUAL TABLE chunks_fts USING fts5(
    text, context, content='chunks', content_rowid='id', tokenize='TOKENIZER'
);
CREATE VIRTUAL TABLE chunks_terms USING fts5vocab(chunks_fts, row);

-- Scripts without spaces, as pairs of characters: the words of the table above would be whole sentences.
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

_REMAKE = "Run `retinue memory index --force` to make it again"
_MEANINGS: tuple[tuple[str, type[IndexUnusable] | type[DiskFull] | type[ReadOnly] | type[NoPermission], str], ...] = (
    ("disk is full", DiskFull, "could not grow: the disk is full. Free some space and try again"),
    ("disk I/O error", DiskFull, "could not be written. Check the disk's free space and health"),
    ("readonly database", ReadOnly, "is read-only. Make it writable or set another `store.path`"),
    ("unable to open", NoPermission, "cannot be opened. Check its owner and permissions"),
    ("malformed", IndexDamaged, f"is damaged. {_REMAKE}"),
    ("not a database", IndexDamaged, f"is no index. {_REMAKE}"),
    ("no such table", IndexDamaged, f"lacks a table. {_REMAKE}"),
    ("no such fts5 table", IndexDamaged, f"lacks a table. {_REMAKE}"),
    ("no such column", IndexDamaged, f"lacks a column. {_REMAKE}"),
    ("vtable constructor failed", IndexDamaged, f"is damaged. {_REMAKE}"),
    ("fts5: ", IndexDamaged, f"is damaged. {_REMAKE}"),
    ("locked", IndexUnusable, "is being written by another process. Try again in a moment"),
)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn the database's errors into ours."""
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
def understood() -> Iterator[None]:
    """Take values in the index that nobody here wrote for the damage that they are."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise IndexDamaged(f"The memory index holds what cannot be read: {error}.") from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection that any one thread at a time may use; transactions are begun and ended by us."""
    with told(path):
        # SQLite gives its side files the permissions of the database, so that is made first, private.
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


def prepare(connection: sqlite3.Connection, path: Path, epoch: str) -> None:
    """Make the tables where there are none; raises where they are not ours to use. `epoch` names this making."""
    with told(path):
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION:
            raise IndexTooNew(
                f"The memory index {path} was written by a newer version of Retinue. Update Retinue, or delete the "
                "file; it is made again from the notes."
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                # `executescript` would commit first, and two processes may start at once.
                for statement in _statements(SCHEMA):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('epoch', ?), ('revision', '0')", (epoch,))
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
