"""The index in one SQLite file: read by many processes, written by one at a time."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from retinue.core.clock import IdFactory, random_id
from retinue.memory.store.protocol import (
    Codes,
    FileRecord,
    IndexDamaged,
    IndexIdentity,
    IndexStore,
    IndexUnusable,
    NewChunk,
    UnembeddedText,
    Vector,
)
from retinue.memory.store.schema import create_tables, damage_reported, open_connection, translated_errors
from retinue.memory.store.vectors import VectorCache, sign_bits
from retinue.memory.store.view import (
    RevisionCache,
    SqliteView,
    read_index_identity,
    read_meta,
    write_meta,
)
from retinue.storage.files import make_private_dir

log = logging.getLogger(__name__)

_STEPS_BETWEEN_CLOCK_CHECKS = 4_000
_WAIT_FOR_WRITER_SECONDS = 600.0
_POLL_SECONDS = 0.05
_SIDE_FILES = ("", "-wal", "-shm", "-journal")


class SqliteStore:
    """The index in the file at `path`, which is created if it does not exist."""

    def __init__(self, path: Path, *, new_id: IdFactory = random_id) -> None:
        self.path = path
        self._new_id = new_id
        self._tables = VectorCache()
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._remembered: RevisionCache | None = None
        make_private_dir(path.parent)
        try:
            with self._connection():
                pass
        except IndexDamaged as damage:
            log.warning("The memory index is created again and filled from the notes: %s", damage)
            self.reset()

    @property
    def revision(self) -> int:
        with self._connection() as base:
            return _revision(base)

    @contextmanager
    def reading(self, deadline: float | None = None) -> Iterator[SqliteView]:
        with self._connection() as base:
            if deadline is not None:
                base.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCK_CHECKS)
            base.execute("BEGIN")
            try:
                notes = dict(base.execute("SELECT key, value FROM meta WHERE key IN ('epoch', 'revision', 'vectors')"))
                with damage_reported():
                    epoch, revision = notes.get("epoch", ""), int(notes.get("revision", 0))
                    dims = int(json.loads(notes["vectors"])["dims"]) if "vectors" in notes else None
                load = partial(self._tables.load, base, epoch, revision, dims or 0)
                yield SqliteView(base, self._remember(epoch, revision), dims, load)
            finally:
                base.set_progress_handler(None, 0)
                base.execute("ROLLBACK")

    def identity(self) -> IndexIdentity | None:
        with self._connection() as base:
            return read_index_identity(base)

    def adopt(self, identity: IndexIdentity) -> None:
        with self._changing() as base:
            write_meta(base, "identity", msgspec.json.encode(identity).decode())

    def files(self) -> dict[str, FileRecord]:
        with self._connection() as base:
            rows = base.execute("SELECT path, source, hash, size, mtime_ns, day FROM files").fetchall()
        with damage_reported():
            return {
                path: FileRecord(path, source, digest, size, mtime, date.fromisoformat(day) if day else None)
                for path, source, digest, size, mtime, day in rows
            }

    def put(self, changes: Sequence[tuple[FileRecord, Sequence[NewChunk]]], removed: Sequence[str] = ()) -> None:
        with self._changing() as base:
            for path in (*removed, *(record.path for record, _ in changes)):
                _remove(base, path)
            who = _embedder(base)
            for record, chunks in changes:
                _insert(base, record, chunks, who)

    def touch(self, files: Sequence[FileRecord]) -> None:
        with self._connection() as base, _transaction(base):
            base.executemany(
                "UPDATE files SET size = ?, mtime_ns = ? WHERE path = ?",
                [(record.size, record.mtime_ns, record.path) for record in files],
            )

    def unembedded(self, limit: int, skip: int = 0) -> list[UnembeddedText]:
        with self._connection() as base:
            rows = base.execute(
                "SELECT c.hash, c.context, c.text FROM chunks c WHERE c.id IN "
                "(SELECT min(chunk) FROM unembedded GROUP BY hash ORDER BY 1 LIMIT ? OFFSET ?) "
                "ORDER BY c.id",
                (limit, skip),
            ).fetchall()
        return [UnembeddedText(digest, context, text) for digest, context, text in rows]

    def count_unembedded(self) -> int:
        with self._connection() as base:
            return int(base.execute("SELECT count(DISTINCT hash) FROM unembedded").fetchone()[0])

    def embed(self, vectors: Mapping[str, Vector], lines: Mapping[str, Codes]) -> None:
        if not vectors:
            return
        dims = len(next(iter(vectors.values())))
        with self._changing() as base:
            write_meta(base, "vectors", json.dumps({"dims": dims}))
            who = _embedder(base)
            for digest, vector in vectors.items():
                added = base.execute(
                    "INSERT INTO embedding_cache (provider, model, provider_key, hash, dims, vector) "
                    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                    (*who, digest, dims, vector.astype("<f4").tobytes()),
                ).fetchone()
                row = added[0] if added else _known_vector(base, who, digest)
                if added:
                    base.execute("INSERT INTO signatures VALUES (?, ?)", (row, sign_bits(vector).tobytes()))
                if added and digest in lines:
                    base.execute("INSERT INTO line_vectors VALUES (?, ?)", (row, lines[digest].tobytes()))
                base.execute("INSERT INTO chunk_vectors SELECT chunk, ? FROM unembedded WHERE hash = ?", (row, digest))
                base.execute("DELETE FROM unembedded WHERE hash = ?", (digest,))

    def prune_cache(self, most: int) -> None:
        """Delete the oldest unused vectors, so that at most `most` of them are kept for texts that may return."""
        with self._connection() as base, _transaction(base):
            unused = "FROM embedding_cache e WHERE NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.embedding = e.id)"
            count = base.execute(f"SELECT count(*) {unused}").fetchone()[0]
            if count > most:
                base.execute(
                    f"DELETE FROM embedding_cache WHERE id IN (SELECT id {unused} ORDER BY id LIMIT ?)",  # noqa: S608
                    (count - most,),
                )
                for table in ("signatures", "line_vectors"):
                    base.execute(f"DELETE FROM {table} WHERE embedding NOT IN (SELECT id FROM embedding_cache)")  # noqa: S608

    def set_meta(self, key: str, value: str) -> None:
        with self._connection() as base, _transaction(base):
            write_meta(base, f"note.{key}", value)

    def get_meta(self, key: str) -> str | None:
        with self._connection() as base:
            return read_meta(base, f"note.{key}")

    @contextmanager
    def rebuilding(self, identity: IndexIdentity) -> Iterator[IndexStore]:
        beside = self.path.with_name(f"{self.path.name}.new")
        remove_index_files(beside)
        fresh = SqliteStore(beside, new_id=self._new_id)
        try:
            fresh.adopt(identity)
            fresh._inherit_cache(self.path, identity)
            yield fresh
            with fresh._connection() as source, self._connection() as target, translated_errors(self.path):
                write_meta(source, "revision", str(_revision(target) + 1))
                # One write transaction: readers see the old index until it commits, and the new one afterwards.
                source.backup(target)
                target.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            fresh.close()
            remove_index_files(beside)

    @contextmanager
    def writing(self, *, wait: bool) -> Iterator[bool]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield _take(descriptor, _WAIT_FOR_WRITER_SECONDS if wait else 0.0)
        finally:
            os.close(descriptor)

    def reset(self) -> None:
        self.close()
        remove_index_files(self.path)
        self._remembered = None
        self._tables.forget()
        with self._connection():
            pass

    def size(self) -> int:
        """Return the size on disk in bytes."""
        files = (self.path.with_name(self.path.name + suffix) for suffix in _SIDE_FILES)
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _inherit_cache(self, old: Path, identity: IndexIdentity) -> None:
        """Copy the vectors of the same embedder from the old index."""
        with self._connection() as base:
            base.execute("ATTACH ? AS old", (str(old),))
            try:
                base.execute(
                    "INSERT INTO embedding_cache (provider, model, provider_key, hash, dims, vector) "
                    "SELECT provider, model, provider_key, hash, dims, vector FROM old.embedding_cache "
                    "WHERE provider = ? AND model = ? AND provider_key = ?",
                    (identity.provider, identity.model, identity.provider_key),
                )
                for table, column in (("signatures", "bits"), ("line_vectors", "codes")):
                    base.execute(
                        f"INSERT INTO {table} SELECT n.id, s.{column} FROM embedding_cache n "  # noqa: S608
                        "JOIN old.embedding_cache o USING (provider, model, provider_key, hash) "
                        f"JOIN old.{table} s ON s.embedding = o.id"
                    )
                row = base.execute("SELECT dims FROM embedding_cache LIMIT 1").fetchone()
                if row:
                    write_meta(base, "vectors", json.dumps({"dims": row[0]}))
            finally:
                base.execute("DETACH old")

    def _remember(self, epoch: str, revision: int) -> RevisionCache:
        known = self._remembered
        if known is None or (known.epoch, known.revision) != (epoch, revision):
            fresh = RevisionCache(epoch, revision)
            # A reader that began before the last change must not replace a newer cache.
            if known is None or known.epoch != epoch or revision > known.revision:
                self._remembered = fresh
            return fresh
        return known

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            base = self._idle.get_nowait()
        except Empty:
            base = open_connection(self.path)
            try:
                create_tables(base, self.path, self._new_id())
            except BaseException:
                base.close()
                raise
        try:
            with translated_errors(self.path):
                yield base
        except BaseException:
            base.close()
            raise
        self._idle.put(base)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as base, _transaction(base):
            yield base
            write_meta(base, "revision", str(_revision(base) + 1))


def _revision(base: sqlite3.Connection) -> int:
    with damage_reported():
        return int(read_meta(base, "revision") or 0)


def remove_index_files(path: Path) -> None:
    """Delete the files of an index; it can be rebuilt."""
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


@contextmanager
def _transaction(base: sqlite3.Connection) -> Iterator[None]:
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # a full disk has rolled back already
            base.execute("ROLLBACK")
        raise


def _take(descriptor: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not seconds:
                return False
            if time.monotonic() > end:
                raise IndexUnusable(
                    "Another process has been indexing for more than ten minutes. Find it and stop it."
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return True


def _remove(base: sqlite3.Connection, path: str) -> None:
    row = base.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
    if row:
        base.execute("DELETE FROM chunks WHERE file = ?", row)
        base.execute("DELETE FROM files WHERE id = ?", row)


def _insert(
    base: sqlite3.Connection, record: FileRecord, chunks: Sequence[NewChunk], embedder: tuple[str, str, str]
) -> None:
    cursor = base.execute(
        "INSERT INTO files (path, source, hash, size, mtime_ns, day, chunks, words) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.path,
            record.source,
            record.hash,
            record.size,
            record.mtime_ns,
            record.day.isoformat() if record.day else None,
            len(chunks),
            sum(chunk.words for chunk in chunks),
        ),
    )
    file = cursor.lastrowid
    for ordinal, chunk in enumerate(chunks):
        added = base.execute(
            "INSERT INTO chunks (file, ordinal, start_line, end_line, hash, words, origin, context, text) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                file,
                ordinal,
                chunk.start_line,
                chunk.end_line,
                chunk.hash,
                chunk.words,
                chunk.origin.origin,
                chunk.context,
                chunk.text,
            ),
        )
        known = _known_vector(base, embedder, chunk.hash)
        if known is not None:
            base.execute("INSERT INTO chunk_vectors VALUES (?, ?)", (added.lastrowid, known))
        else:
            base.execute("INSERT INTO unembedded VALUES (?, ?)", (added.lastrowid, chunk.hash))
        if chunk.standing:
            base.execute("INSERT INTO standing_chunks VALUES (?, ?)", (added.lastrowid, chunk.standing))
        if chunk.pairs:
            base.execute("INSERT INTO chunk_pairs VALUES (?, ?)", (added.lastrowid, chunk.pairs))


def _known_vector(base: sqlite3.Connection, embedder: tuple[str, str, str], digest: str) -> int | None:
    row = base.execute(
        "SELECT id FROM embedding_cache WHERE provider = ? AND model = ? AND provider_key = ? AND hash = ?",
        (*embedder, digest),
    ).fetchone()
    return row[0] if row else None


def _embedder(base: sqlite3.Connection) -> tuple[str, str, str]:
    identity = read_index_identity(base)
    return (identity.provider, identity.model, identity.provider_key) if identity else ("", "", "")
