"""The index in PostgreSQL: the same contract as in SQLite, for several processes on several machines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import msgspec
import numpy as np

from retinue.core.clock import IdFactory, random_id
from retinue.memory.store.postgres_view import (
    PAIRS,
    STATEMENTS,
    WORDS,
    Field,
    PostgresView,
    decode_identity,
    format_vector,
)
from retinue.memory.store.protocol import (
    Codes,
    FileRecord,
    IndexIdentity,
    IndexStore,
    IndexUnusable,
    NewChunk,
    UnembeddedText,
    Vector,
)
from retinue.memory.store.terms import ChunkTerms, TermReader, read_pairs
from retinue.memory.store.vectors import LINES_UP_TO, LineTable, decode_codes
from retinue.memory.store.view import RevisionCache
from retinue.storage.postgres.server import Connection, PostgresServer

_WRITER_LOCKS = 0x4D_65_6D
"""The class of the advisory locks of writers."""
_WAIT_FOR_WRITER = "600s"
_BESIDE = "\n"
"""Separates the name of an index from the id of a rebuild; no agent's id contains it."""

_CHUNK_COLUMNS = (
    "id", "file", "ordinal", "start_line", "end_line", "hash", "words", "origin", "context", "text", "standing",
)  # fmt: skip
_POSTING_COLUMNS = ("field", "term", "chunk", "positions", "length")

IndexRow = tuple[int, int, Any, int | None]


class PostgresStore:
    """The index with the given name in a database, whose tables must exist.

    The name begins with the team and a slash; the connections of the server see the indexes of one team only.
    """

    def __init__(self, server: PostgresServer, name: str, *, new_id: IdFactory = random_id) -> None:
        self._server = server
        self._name = name
        self._new_id = new_id
        self._terms = TermReader()
        self._lock = Lock()
        self._remembered: RevisionCache | None = None
        self._lines: tuple[str, int, LineTable | None] | None = None
        self._create()

    @property
    def revision(self) -> int:
        with self._server.connection() as base:
            return self._find(base)[1]

    @contextmanager
    def reading(self, deadline: float | None = None) -> Iterator[PostgresView]:
        with self._server.connection() as base, base.transaction():
            base.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if deadline is not None:
                left = max(1, int((deadline - time.monotonic()) * 1_000))
                base.execute(f"SET LOCAL statement_timeout = {left}".encode())
            index, revision, identity, dims = self._find(base)
            remembered = self._remember(RevisionCache(str(index), revision, decode_identity(identity)))
            yield PostgresView(
                base, remembered, dims, self._terms, lambda: self._load_lines(base, index, revision, dims or 0)
            )

    def identity(self) -> IndexIdentity | None:
        with self._server.connection() as base:
            return decode_identity(self._find(base)[2])

    def adopt(self, identity: IndexIdentity) -> None:
        with self._changing() as (base, index, _):
            _run(base, "adopt", index=index, identity=msgspec.json.encode(identity).decode())

    def files(self) -> dict[str, FileRecord]:
        with self._server.connection() as base:
            rows = _run(base, "list_files", name=self._name)
        return {row[0]: FileRecord(*row) for row in rows}

    def put(self, changes: Sequence[tuple[FileRecord, Sequence[NewChunk]]], removed: Sequence[str] = ()) -> None:
        paths = [*removed, *(record.path for record, _ in changes)]
        with self._changing() as (base, index, identity):
            _run(base, "forget_terms", index=index, paths=paths)
            _run(base, "delete_files", index=index, paths=paths)
            self._insert(base, index, changes, _embedder(identity))

    def touch(self, files: Sequence[FileRecord]) -> None:
        with self._changing(count=False) as (base, index, _):
            base.cursor().executemany(
                STATEMENTS["touch_file"],
                [
                    {"index": index, "path": record.path, "size": record.size, "mtime_ns": record.mtime_ns}
                    for record in files
                ],
            )

    def unembedded(self, limit: int, skip: int = 0) -> list[UnembeddedText]:
        with self._server.connection() as base:
            rows = _run(base, "list_unembedded", name=self._name, limit=limit, skip=skip)
        return [UnembeddedText(*row) for row in rows]

    def count_unembedded(self) -> int:
        with self._server.connection() as base:
            return int(_run(base, "count_unembedded", name=self._name)[0][0])

    def embed(self, vectors: Mapping[str, Vector], lines: Mapping[str, Codes]) -> None:
        if not vectors:
            return
        dims = len(next(iter(vectors.values())))
        with self._changing() as (base, index, identity):
            embedder = _embedder(identity)
            _run(base, "set_dims", index=index, dims=dims)
            base.cursor().executemany(
                STATEMENTS["add_vector"],
                [
                    {
                        "index": index,
                        "embedder": embedder,
                        "hash": digest,
                        "dims": dims,
                        "vector": format_vector(vector),
                        "lines": lines[digest].tobytes() if digest in lines else None,
                    }
                    for digest, vector in vectors.items()
                ],
            )
            _run(base, "use_vectors", index=index, hashes=list(vectors), embedder=embedder)

    def prune_cache(self, most: int) -> None:
        with self._server.connection() as base:
            _run(base, "prune_vectors", name=self._name, most=most)

    def set_meta(self, key: str, value: str) -> None:
        with self._changing(count=False) as (base, index, _):
            _run(base, "write_meta", index=index, key=key, value=value)

    def get_meta(self, key: str) -> str | None:
        with self._server.connection() as base:
            rows = _run(base, "read_meta", name=self._name, key=key)
        return rows[0][0] if rows else None

    @contextmanager
    def rebuilding(self, identity: IndexIdentity) -> Iterator[IndexStore]:
        fresh = PostgresStore(self._server, f"{self._name}{_BESIDE}{self._new_id()}", new_id=self._new_id)
        try:
            fresh.adopt(identity)
            fresh._inherit_vectors(self._name, identity)
            yield fresh
            with self._changing() as (base, _, _):
                revision = self._find(base)[1] + 1
                _run(base, "delete_indexes", names=[self._name])
                _run(base, "replace_index", name=self._name, beside=fresh._name, revision=revision)
        finally:
            with self._server.connection() as base:
                _run(base, "delete_indexes", names=[fresh._name])
            fresh.close()

    @contextmanager
    def writing(self, *, wait: bool) -> Iterator[bool]:
        values = {"locks": _WRITER_LOCKS, "name": self._name}
        with self._server.connection() as base:
            if wait:
                base.execute(f"SET lock_timeout = '{_WAIT_FOR_WRITER}'".encode())
                base.execute("SELECT pg_advisory_lock(%(locks)s, hashtext(%(name)s))", values)
                taken = True
            else:
                row = base.execute("SELECT pg_try_advisory_lock(%(locks)s, hashtext(%(name)s))", values).fetchone()
                taken = bool(row and row[0])
            try:
                yield taken
            finally:
                if taken:
                    base.execute("SELECT pg_advisory_unlock(%(locks)s, hashtext(%(name)s))", values)
                base.execute("RESET lock_timeout")

    def reset(self) -> None:
        with self._server.connection() as base:
            _run(base, "delete_indexes", names=[self._name])
        self._remembered = self._lines = None
        self._create()

    def close(self) -> None:
        self._terms.close()

    def _create(self) -> None:
        with self._server.connection() as base:
            _run(base, "create_index", name=self._name)

    def _find(self, base: Connection) -> IndexRow:
        rows = _run(base, "find_index", name=self._name)
        if not rows:
            raise IndexUnusable("The memory index was deleted while it was in use. Run `retinue memory index`.")
        found: IndexRow = rows[0]
        return found

    @contextmanager
    def _changing(self, *, count: bool = True) -> Iterator[tuple[Connection, int, IndexIdentity | None]]:
        """Run a transaction that changes this index alone; with `count` it has a new revision."""
        with self._server.connection() as base, base.transaction():
            rows = _run(base, "lock_index", name=self._name)
            if not rows:
                self._find(base)
            index, identity = rows[0]
            yield base, index, decode_identity(identity)
            if count:
                _run(base, "count_revision", index=index)

    def _insert(
        self,
        base: Connection,
        index: int,
        changes: Sequence[tuple[FileRecord, Sequence[NewChunk]]],
        embedder: str,
    ) -> None:
        files = [(_add_file(base, index, record, chunks), chunks) for record, chunks in changes]
        chunks = [(file, ordinal, chunk) for file, found in files for ordinal, chunk in enumerate(found)]
        ids = [row[0] for row in _run(base, "take_chunk_ids", count=len(chunks))]
        words = self._terms.read([(chunk.text, chunk.context) for _, _, chunk in chunks])
        rows = [_chunk_row(key, file, ordinal, chunk) for key, (file, ordinal, chunk) in zip(ids, chunks, strict=True)]
        _add_rows(base, "add_chunks", index, _CHUNK_COLUMNS, rows)
        postings = [
            row
            for key, terms, (_, _, chunk) in zip(ids, words, chunks, strict=True)
            for row in (*_postings(WORDS, key, terms), *_postings(PAIRS, key, read_pairs(chunk.pairs)))
        ]
        _add_rows(base, "add_postings", index, _POSTING_COLUMNS, postings)
        for name in ("count_terms", "count_fields"):
            _run(base, name, chunks=ids)
        _run(base, "use_known_vectors", chunks=ids, embedder=embedder)

    def _inherit_vectors(self, name: str, identity: IndexIdentity) -> None:
        with self._changing() as (base, index, _):
            _run(base, "inherit_vectors", index=index, name=name, embedder=_embedder(identity))
            _run(base, "inherit_dims", index=index)

    def _remember(self, fresh: RevisionCache) -> RevisionCache:
        with self._lock:
            known = self._remembered
            if known is not None and (known.epoch, known.revision) == (fresh.epoch, fresh.revision):
                return known
            # A reader that began before the last change must not replace a newer cache.
            if known is None or known.epoch != fresh.epoch or fresh.revision > known.revision:
                self._remembered = fresh
            return fresh

    def _load_lines(self, base: Connection, index: int, revision: int, dims: int) -> LineTable | None:
        """Return the vectors of all lines of this revision, or None if there are too many to compare them all."""
        with self._lock:
            known = self._lines
            if known is not None and known[:2] == (str(index), revision):
                return known[2]
            used = [row[0] for row in _run(base, "used_vectors", index=index)]
            table = None
            if len(used) <= LINES_UP_TO:
                rows = _run(base, "lines_of_vectors", embeddings=used)
                owners = [key for key, codes in rows for _ in range(len(codes) // dims)]
                codes = b"".join(codes for _, codes in rows)
                table = LineTable.of(np.array(owners, dtype=np.int64), decode_codes(codes, dims or 1))
            self._lines = (str(index), revision, table)
            return table


def _run(base: Connection, statement: str, /, **values: Any) -> list[Any]:
    cursor = base.execute(STATEMENTS[statement], values)
    return cursor.fetchall() if cursor.description else []


def _embedder(identity: IndexIdentity | None) -> str:
    return "\n".join((identity.provider, identity.model, identity.provider_key)) if identity else ""


def _add_file(base: Connection, index: int, record: FileRecord, chunks: Sequence[NewChunk]) -> int:
    words = sum(chunk.words for chunk in chunks)
    values = {**msgspec.structs.asdict(record), "index": index, "chunks": len(chunks), "words": words}
    return int(_run(base, "add_file", **values)[0][0])


def _add_rows(
    base: Connection, statement: str, index: int, columns: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        arrays = {name: list(values) for name, values in zip(columns, zip(*rows, strict=True), strict=True)}
        _run(base, statement, index=index, **arrays)


def _chunk_row(key: int, file: int, ordinal: int, chunk: NewChunk) -> tuple[object, ...]:
    return (
        key,
        file,
        ordinal,
        chunk.start_line,
        chunk.end_line,
        chunk.hash,
        chunk.words,
        chunk.origin.origin,
        chunk.context,
        chunk.text,
        chunk.standing,
    )


def _postings(field: Field, chunk: int, terms: ChunkTerms) -> list[tuple[object, ...]]:
    return [
        (field, term, chunk, f"{{{','.join(map(str, places))}}}", terms.length)
        for term, places in terms.positions.items()
    ]
