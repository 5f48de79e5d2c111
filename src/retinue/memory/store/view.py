"""One consistent state of the index in SQLite, for searching."""

# ruff: noqa: S608 -- only our own table names and placeholders are inserted into statements

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from retinue.core.labels import Label
from retinue.memory.store.protocol import IndexIdentity, IndexTotals, Similarity, StoredChunk, Vector
from retinue.memory.store.schema import damage_reported
from retinue.memory.store.vectors import FloatTable, Ids, VectorTables, decode_codes, decode_vectors, line_cosines

_MAX_CACHED_STEMS = 20_000
_CHUNK_COLUMNS = (
    "SELECT c.id, f.path, f.source, c.ordinal, c.start_line, c.end_line, c.text, c.context, c.words, c.origin, f.day "
    "FROM chunks c JOIN files f ON f.id = c.file"
)


class RevisionCache(Struct):
    """Cached facts about one revision of the index. A newer revision replaces it."""

    epoch: str
    revision: int
    identity: IndexIdentity | None = None
    totals: IndexTotals | None = None
    frequencies: dict[str, int] = field(default_factory=dict)


class SqliteView:
    """One state of the index; valid as long as the transaction of its connection.

    `load` returns the vectors of this state. They are large, so they are loaded only for a vector search.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        remembered: RevisionCache,
        dims: int | None,
        load: Callable[[], VectorTables],
    ) -> None:
        self._base = connection
        self._remembered = remembered
        self._dims = dims
        self._load = load

    def identity(self) -> IndexIdentity | None:
        if self._remembered.identity is None:
            self._remembered.identity = read_index_identity(self._base)
        return self._remembered.identity

    def totals(self) -> IndexTotals:
        if self._remembered.totals is None:
            files, chunks, words = self._base.execute(
                "SELECT count(*), coalesce(sum(chunks), 0), coalesce(sum(words), 0) FROM files"
            ).fetchone()
            embedded = self._base.execute("SELECT count(*) FROM chunk_vectors").fetchone()[0]
            self._remembered.totals = IndexTotals(files, chunks, words, embedded)
        return self._remembered.totals

    def frequencies(self, stems: Sequence[str]) -> Mapping[str, int]:
        known = self._remembered.frequencies
        if len(known) > _MAX_CACHED_STEMS:
            known.clear()
        for stem in stems:
            if stem not in known:
                row = self._base.execute("SELECT doc FROM chunks_terms WHERE term = ?", (stem,)).fetchone()
                known[stem] = row[0] if row else 0
        return {stem: known[stem] for stem in stems}

    def find_words(self, words: Sequence[str], limit: int) -> list[int]:
        return self._match("chunks_fts", words, limit)

    def find_exact(self, phrases: Sequence[str], limit: int) -> list[int]:
        return self._match("chunks_fts", phrases, limit)

    def find_pairs(self, pairs: Sequence[str], limit: int) -> list[int]:
        return self._match("pairs_fts", pairs, limit)

    def find_standing(self, limit: int) -> list[int]:
        rows = self._base.execute("SELECT chunk FROM standing_chunks ORDER BY chunk DESC LIMIT ?", (limit,))
        return [row[0] for row in rows]

    def find_nearest(self, vector: Vector, limit: int) -> list[int]:
        if self._dims != len(vector):
            return []
        table, lines = self._load().table, self._load().lines
        if len(table.ids) == 0:
            return []
        most = limit if lines is None else (limit + 1) // 2
        near = (
            table.nearest(vector, most) if isinstance(table, FloatTable) else table.nearest(vector, most, self._fetch)
        )
        if lines is not None:
            near = np.concatenate([near, lines.nearest(vector, limit)])
        rows = self._base.execute(
            f"SELECT chunk, embedding FROM chunk_vectors WHERE embedding IN ({_marks(near)})", near.tolist()
        ).fetchall()
        order: dict[int, int] = {}
        for embedding in near.tolist():
            order.setdefault(embedding, len(order))
        return [chunk for chunk, _ in sorted(rows, key=lambda row: (order[row[1]], row[0]))]

    def similarities(self, vector: Vector, ids: Sequence[int]) -> Mapping[int, Similarity]:
        if self._dims != len(vector):
            return {}
        rows = self._base.execute(
            f"SELECT chunk, embedding FROM chunk_vectors WHERE chunk IN ({_marks(ids)})", tuple(ids)
        ).fetchall()
        if not rows:
            return {}
        table = self._load().table
        wanted = np.array([embedding for _, embedding in rows], dtype=np.int64)
        if isinstance(table, FloatTable):
            scores = table.similarities(vector, wanted)
        else:
            found, vectors = self._fetch(np.unique(wanted).tolist())
            scores = (vectors @ vector)[np.searchsorted(found, wanted)]
        lines = self._line_similarities(vector, np.unique(wanted).tolist())
        return {
            chunk: Similarity(float(score), lines.get(embedding, ()))
            for (chunk, embedding), score in zip(rows, scores, strict=True)
        }

    def _line_similarities(self, vector: Vector, embeddings: Sequence[int]) -> dict[int, tuple[float, ...]]:
        lines = self._load().lines
        if lines is not None:
            return lines.similarities(vector, embeddings)
        rows = self._base.execute(
            f"SELECT embedding, codes FROM line_vectors WHERE embedding IN ({_marks(embeddings)})", tuple(embeddings)
        ).fetchall()
        if not rows:
            return {}
        cosines = line_cosines(decode_codes(b"".join(codes for _, codes in rows), len(vector)), vector).tolist()
        found: dict[int, tuple[float, ...]] = {}
        at = 0
        for embedding, codes in rows:
            count = len(codes) // len(vector)
            found[embedding] = tuple(cosines[at : at + count])
            at += count
        return found

    def chunks(self, ids: Sequence[int]) -> list[StoredChunk]:
        rows = self._base.execute(f"{_CHUNK_COLUMNS} WHERE c.id IN ({_marks(ids)})", tuple(ids))
        with damage_reported():
            return [_chunk(row) for row in rows]

    def _match(self, table: str, phrases: Sequence[str], limit: int) -> list[int]:
        if not phrases:
            return []
        # Quoted text contains no operators. A phrase of punctuation only has no words and matches nothing.
        expression = " OR ".join('"' + phrase.replace('"', '""') + '"' for phrase in phrases)
        rows = self._base.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?", (expression, limit)
        )
        return [row[0] for row in rows]

    def _fetch(self, ids: Sequence[int]) -> tuple[Ids, Vector]:
        assert self._dims is not None
        rows = self._base.execute(
            f"SELECT id, vector FROM embedding_cache WHERE id IN ({_marks(ids)}) ORDER BY id", tuple(ids)
        ).fetchall()
        return np.array([row[0] for row in rows], dtype=np.int64), decode_vectors([row[1] for row in rows], self._dims)


def _marks(items: Sequence[int] | Ids) -> str:
    return ",".join("?" * len(items))


def _chunk(row: Iterable[Any]) -> StoredChunk:
    identifier, path, source, ordinal, start, end, text, context, words, origin, day = row
    return StoredChunk(
        identifier,
        path,
        source,
        ordinal,
        start,
        end,
        text,
        context,
        words,
        Label.parse(origin),
        date.fromisoformat(day) if day else None,
    )


def read_index_identity(connection: sqlite3.Connection) -> IndexIdentity | None:
    text = read_meta(connection, "identity")
    with damage_reported():
        return msgspec.json.decode(text, type=IndexIdentity) if text else None


def read_meta(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def write_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
