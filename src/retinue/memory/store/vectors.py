"""Vector tables in memory, loaded by the first search that needs them.

They contain the vectors themselves if there are few, only their signs if there are many.
"""

# ruff: noqa: S608 -- only our own table names and placeholders are inserted into statements

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from retinue.memory.store.protocol import Codes, Vector
from retinue.memory.store.schema import damage_reported

FLOATS_UP_TO = 50_000
LINES_UP_TO = 20_000
RESCORED = 400
RESCORED_LINES = 1_000
_AT_ONCE = 4_096

Ids = npt.NDArray[np.int64]
FetchVectors = Callable[[Sequence[int]], tuple[Ids, Vector]]


def sign_bits(vectors: Vector) -> npt.NDArray[np.uint8]:
    """Return one bit for each dimension: whether it is positive."""
    return np.packbits(vectors > 0, axis=-1)


def decode_codes(blob: bytes | bytearray, dims: int) -> Codes:
    return np.frombuffer(blob, dtype=np.int8).reshape(-1, dims)


def decode_vectors(blobs: Sequence[bytes], dims: int) -> Vector:
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), dims)


class FloatTable(Struct, frozen=True):
    """Unit vectors, sorted by id."""

    ids: Ids
    rows: Vector

    def nearest(self, vector: Vector, limit: int) -> Ids:
        return self.ids[_top(_products(self.rows, vector), limit)]

    def similarities(self, vector: Vector, ids: Ids) -> Vector:
        return self.rows[np.searchsorted(self.ids, ids)] @ vector

    def merged(self, ids: Ids, rows: Vector, kept: npt.NDArray[np.bool_]) -> FloatTable:
        return FloatTable(np.concatenate([self.ids[kept], ids]), np.concatenate([self.rows[kept], rows]))


class SignTable(Struct, frozen=True):
    """The signs of vectors, sorted by id; the nearest by signs are rescored with the vectors that `fetch` reads."""

    ids: Ids
    words: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, ids: Ids, signs: npt.NDArray[np.uint8]) -> SignTable:
        return cls(ids, _as_words(signs))

    def nearest(self, vector: Vector, limit: int, fetch: FetchVectors) -> Ids:
        few = self.ids[_closest(_distances(self.words, sign_bits(vector)), max(RESCORED, limit * 8))]
        ids, rows = fetch(few.tolist())
        return ids[_top(rows @ vector, limit)]

    def merged(self, ids: Ids, signs: npt.NDArray[np.uint8], kept: npt.NDArray[np.bool_]) -> SignTable:
        return SignTable(
            np.concatenate([self.ids[kept], ids]), np.concatenate([self.words[kept], _as_words(signs)], axis=0)
        )


class LineTable(Struct, frozen=True):
    """The vectors of lines, each with the id of its text, in the order of lines.

    The nearest are found by signs and ordered by the 8-bit vectors. The lines of one person's notes are similar, so
    signs are relative to their `centre`; otherwise most would be equal.
    """

    owners: Ids
    codes: Codes
    lengths: Vector
    centre: Codes
    words: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, owners: Ids, codes: Codes, centre: Codes | None = None) -> LineTable:
        if centre is None:
            middle = codes.mean(axis=0) if len(codes) else np.zeros(codes.shape[1])
            centre = np.asarray(np.rint(middle), dtype=np.int8)
        return cls(owners, codes, line_lengths(codes), centre, _as_words(_signs_from(codes, centre)))

    def nearest(self, vector: Vector, limit: int) -> Ids:
        """Return the texts with the nearest lines."""
        wanted = np.packbits(encode_lines(vector[None, :])[0] > self.centre)
        few = _closest(_distances(self.words, wanted), RESCORED_LINES)
        near = self.owners[few[_top(line_cosines(self.codes[few], vector, self.lengths[few]), limit * 3)]]
        _, first = np.unique(near, return_index=True)
        return near[np.sort(first)][:limit]

    def similarities(self, vector: Vector, owners: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """Return the cosines of the lines of each text; texts without lines are omitted."""
        starts = np.searchsorted(self.owners, owners, side="left").tolist()
        ends = np.searchsorted(self.owners, owners, side="right").tolist()
        spans = [(owner, start, end) for owner, start, end in zip(owners, starts, ends, strict=True) if end > start]
        if not spans:
            return {}
        rows = np.concatenate([self.codes[start:end] for _, start, end in spans])
        lengths = np.concatenate([self.lengths[start:end] for _, start, end in spans])
        cosines = line_cosines(rows, vector, lengths).tolist()
        found: dict[int, tuple[float, ...]] = {}
        at = 0
        for owner, start, end in spans:
            found[owner] = tuple(cosines[at : at + end - start])
            at += end - start
        return found

    def merged(self, owners: Ids, codes: Codes, kept: npt.NDArray[np.bool_]) -> LineTable:
        fresh = LineTable.of(owners, codes, self.centre)
        return LineTable(
            np.concatenate([self.owners[kept], fresh.owners]),
            np.concatenate([self.codes[kept], fresh.codes], axis=0),
            np.concatenate([self.lengths[kept], fresh.lengths]),
            self.centre,
            np.concatenate([self.words[kept], fresh.words], axis=0),
        )


def encode_lines(vectors: Vector) -> Codes:
    """Quantize vectors to one byte per dimension, each scaled to the full range."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(vectors * 127, largest, out=np.zeros_like(vectors), where=largest > 0)
    return np.asarray(np.rint(scaled), dtype=np.int8)


def _signs_from(codes: Codes, centre: Codes) -> npt.NDArray[np.uint8]:
    """Return the signs of lines relative to a centre; computed in blocks, because unpacked signs are large."""
    out = np.empty((len(codes), (codes.shape[1] + 7) // 8), dtype=np.uint8)
    for at in range(0, len(codes), _AT_ONCE):
        out[at : at + _AT_ONCE] = np.packbits(codes[at : at + _AT_ONCE] > centre, axis=-1)
    return out


def line_lengths(codes: Codes) -> Vector:
    """Return the length of each line vector; computed in blocks, because floats need four times the memory."""
    out = np.empty(len(codes), dtype=np.float32)
    for at in range(0, len(codes), _AT_ONCE):
        floats = codes[at : at + _AT_ONCE].astype(np.float32)
        np.sqrt(np.einsum("ij,ij->i", floats, floats), out=out[at : at + _AT_ONCE])
    return out


def line_cosines(codes: Codes, vector: Vector, lengths: Vector | None = None) -> Vector:
    """Return the cosine of each line with a vector; 0 for a line without words."""
    if lengths is None:
        lengths = line_lengths(codes)
    out = np.zeros(len(codes), dtype=np.float32)
    np.divide(codes.astype(np.float32) @ vector, lengths, out=out, where=lengths > 0)
    return out


def _products(rows: Vector, vector: Vector) -> Vector:
    """Return each row times a vector, without the threads of BLAS, which are slow on a busy machine."""
    return np.asarray(np.einsum("ij,j->i", rows, vector), dtype=np.float32)


def _distances(words: npt.NDArray[np.uint64], signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """Return the Hamming distance of each row to the given signs."""
    wanted = _as_words(signs[None, :])[0]
    distance = np.zeros(len(words), dtype=np.uint16)
    for column, word in enumerate(wanted):
        distance += np.bitwise_count(words[:, column] ^ word)
    return distance


def _as_words(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return signs as 64-bit words, padded with zeros, in column-major order, as they are compared."""
    missing = -signs.shape[1] % 8
    padded = np.pad(signs, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(signs)
    return np.asfortranarray(padded.view(np.uint64))


def _closest(distances: npt.NDArray[np.uint16], limit: int) -> npt.NDArray[np.intp]:
    """Return the positions of the smallest distances, sorted; ties in order of position.

    There are few distinct distances, so counting them is faster than sorting.
    """
    edge = int(np.searchsorted(np.bincount(distances).cumsum(), limit))
    near = np.flatnonzero(distances <= edge)
    return near[np.argsort(distances[near], kind="stable")][:limit]


def _top(scores: npt.NDArray[np.floating | np.integer], limit: int) -> npt.NDArray[np.intp]:
    """Return the positions of the highest scores, sorted; ties in order of position."""
    if limit < len(scores):
        edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        near = np.flatnonzero(scores >= edge)
    else:
        near = np.arange(len(scores))
    return near[np.argsort(-scores[near], kind="stable")][:limit]


_MAX_MARKS = 500


class VectorTables(Struct, frozen=True):
    """The vectors of one revision of the index; `lines` is None if there are too many to scan."""

    epoch: str
    revision: int
    table: FloatTable | SignTable
    lines: LineTable | None


class VectorCache:
    """Caches the vectors of the newest revision; those of the next one are derived from them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._newest: VectorTables | None = None

    def load(self, connection: sqlite3.Connection, epoch: str, revision: int, dims: int) -> VectorTables:
        """Return the vectors of the revision that the connection's transaction sees."""
        with self._lock:
            known = self._newest if self._newest and self._newest.epoch == epoch else None
            if known is not None and known.revision == revision:
                return known
            with damage_reported():
                table = _load_table(connection, known.table if known else None, dims)
                lines = _load_lines(connection, known.lines if known else None, table.ids, dims)
            fresh = VectorTables(epoch, revision, table, lines)
            # A reader that began before the last change must not replace a newer cache.
            if known is None or revision > known.revision:
                self._newest = fresh
            return fresh

    def forget(self) -> None:
        self._newest = None


def _load_table(
    connection: sqlite3.Connection, before: FloatTable | SignTable | None, dims: int
) -> FloatTable | SignTable:
    """Load the vectors in use; those in `before` are not read again."""
    rows = connection.execute("SELECT DISTINCT embedding FROM chunk_vectors ORDER BY embedding")
    wanted = np.fromiter((row[0] for row in rows), dtype=np.int64)
    few = len(wanted) <= FLOATS_UP_TO
    if before is not None and (len(before.ids) == 0 or isinstance(before, FloatTable) is not few):
        before = None
    kept = np.isin(before.ids, wanted, assume_unique=True) if before is not None else None
    if before is not None and kept is not None:
        fresh = wanted[~np.isin(wanted, before.ids, assume_unique=True)]
        if len(fresh) and fresh[0] < before.ids[-1]:
            # A cached vector is in use again, so the ids would no longer be sorted.
            before, kept, fresh = None, None, wanted
    else:
        fresh = wanted
    table, column, width = ("embedding_cache", "vector", dims) if few else ("signatures", "bits", (dims + 7) // 8)
    key = "id" if few else "embedding"
    low, high = (int(fresh[0]), int(fresh[-1])) if len(fresh) else (0, -1)
    use = set(fresh.tolist())
    found = connection.execute(
        f"SELECT {key}, {column} FROM {table} WHERE {key} BETWEEN ? AND ? ORDER BY {key}", (low, high)
    )
    blobs = bytearray()
    for row in found:
        if row[0] in use:
            blobs += row[1]
    if few:
        floats = np.frombuffer(blobs, dtype="<f4").reshape(len(fresh), width)
        if isinstance(before, FloatTable) and kept is not None:
            return before.merged(fresh, floats, kept)
        return FloatTable(fresh, floats)
    signs = np.frombuffer(blobs, dtype=np.uint8).reshape(len(fresh), width)
    if isinstance(before, SignTable) and kept is not None:
        return before.merged(fresh, signs, kept)
    return SignTable.of(fresh, signs)


def _load_lines(connection: sqlite3.Connection, before: LineTable | None, used: Ids, dims: int) -> LineTable | None:
    """Load the line vectors of the texts in use; return None if there are too many to scan."""
    if len(used) > LINES_UP_TO:
        return None
    had = np.unique(before.owners) if before is not None else used[:0]
    wanted = used[~np.isin(used, had, assume_unique=True)].tolist()
    if before is not None and (not len(had) or (wanted and wanted[0] < had[-1])):
        # A cached text is in use again, so the owners would no longer be sorted.
        before, wanted = None, used.tolist()
    kept = np.isin(before.owners, used) if before is not None else None
    owners: list[int] = []
    codes = bytearray()
    for at in range(0, len(wanted), _MAX_MARKS):
        some = wanted[at : at + _MAX_MARKS]
        marks = ",".join("?" * len(some))
        rows = connection.execute(
            f"SELECT embedding, codes FROM line_vectors WHERE embedding IN ({marks}) ORDER BY embedding", some
        )
        for embedding, blob in rows:
            owners.extend([embedding] * (len(blob) // dims))
            codes += blob
    fresh = np.array(owners, dtype=np.int64), decode_codes(codes, dims)
    return before.merged(*fresh, kept) if before is not None and kept is not None else LineTable.of(*fresh)
