"""Vectors in memory: all of them while they are few, only their signs when they are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from retinue.memory.errors import EmbeddingFailed
from retinue.memory.store import Codes, Vector

FLOATS_UP_TO = 50_000
LINES_UP_TO = 20_000
RESCORED = 400
RESCORED_LINES = 1_000
_AT_ONCE = 4_096

Ids = npt.NDArray[np.int64]
FetchVectors = Callable[[Sequence[int]], tuple[Ids, Vector]]


def check_vectors(rows: object, count: int, who: str) -> Vector:
    """Rows of numbers as vectors of length one; raises `EmbeddingFailed` for anything that cannot be searched with."""
    try:
        vectors = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise EmbeddingFailed(f"{who} returned something that is no list of vectors.") from None
    if vectors.ndim != 2 or len(vectors) != count or vectors.shape[1] == 0:
        raise EmbeddingFailed(f"{who} returned vectors of shape {vectors.shape} for {count} texts.")
    if not np.isfinite(vectors).all():
        raise EmbeddingFailed(f"{who} returned numbers that are not finite.")
    return normalise(vectors)


def normalise(vectors: Vector) -> Vector:
    """Rows of length one; a row of zeros stays as it is and is near to nothing."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0), dtype=np.float32)


def signs_of(vectors: Vector) -> npt.NDArray[np.uint8]:
    """One bit for each dimension: whether it is positive."""
    return np.packbits(vectors > 0, axis=-1)


def to_codes(blob: bytes | bytearray, dims: int) -> Codes:
    return np.frombuffer(blob, dtype=np.int8).reshape(-1, dims)


def stack(blobs: Sequence[bytes], dims: int) -> Vector:
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), dims)


class FloatTable(Struct, frozen=True):
    """Vectors of length one by id, in the order of ids."""

    ids: Ids
    rows: Vector

    def nearest(self, vector: Vector, limit: int) -> Ids:
        return self.ids[_top(_products(self.rows, vector), limit)]

    def similarities(self, vector: Vector, ids: Ids) -> Vector:
        return self.rows[np.searchsorted(self.ids, ids)] @ vector

    def merged(self, ids: Ids, rows: Vector, kept: npt.NDArray[np.bool_]) -> FloatTable:
        return FloatTable(np.concatenate([self.ids[kept], ids]), np.concatenate([self.rows[kept], rows]))


class SignTable(Struct, frozen=True):
    """The signs of vectors by id; the nearest by signs are compared again by their numbers, which `fetch` reads."""

    ids: Ids
    words: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, ids: Ids, signs: npt.NDArray[np.uint8]) -> SignTable:
        return cls(ids, _as_words(signs))

    def nearest(self, vector: Vector, limit: int, fetch: FetchVectors) -> Ids:
        few = self.ids[_closest(_distances(self.words, signs_of(vector)), max(RESCORED, limit * 8))]
        ids, rows = fetch(few.tolist())
        return ids[_top(rows @ vector, limit)]

    def merged(self, ids: Ids, signs: npt.NDArray[np.uint8], kept: npt.NDArray[np.bool_]) -> SignTable:
        return SignTable(
            np.concatenate([self.ids[kept], ids]), np.concatenate([self.words[kept], _as_words(signs)], axis=0)
        )


class LineTable(Struct, frozen=True):
    """The vectors of lines, each with the id of the text it belongs to, in the order of lines.

    The nearest are found by signs and put in order by the coarse vectors. Lines of one person's notes all lean the same
    way, so signs are taken from their `centre`, or most would be alike.
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
        return cls(owners, codes, lengths_of(codes), centre, _as_words(_signs_from(codes, centre)))

    def nearest(self, vector: Vector, limit: int) -> Ids:
        """The texts with the nearest lines."""
        wanted = np.packbits(encode_lines(vector[None, :])[0] > self.centre)
        few = _closest(_distances(self.words, wanted), RESCORED_LINES)
        near = self.owners[few[_top(line_cosines(self.codes[few], vector, self.lengths[few]), limit * 3)]]
        _, first = np.unique(near, return_index=True)
        return near[np.sort(first)][:limit]

    def similarities(self, vector: Vector, owners: Sequence[int]) -> dict[int, tuple[float, ...]]:
        """The cosines of the lines of each text; texts without lines are left out."""
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
    """Vectors with one byte a dimension, each stretched to use the whole byte."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(vectors * 127, largest, out=np.zeros_like(vectors), where=largest > 0)
    return np.asarray(np.rint(scaled), dtype=np.int8)


def _signs_from(codes: Codes, centre: Codes) -> npt.NDArray[np.uint8]:
    """The signs of lines as seen from a centre; a few lines at a time, because unpacked they are large."""
    out = np.empty((len(codes), (codes.shape[1] + 7) // 8), dtype=np.uint8)
    for at in range(0, len(codes), _AT_ONCE):
        out[at : at + _AT_ONCE] = np.packbits(codes[at : at + _AT_ONCE] > centre, axis=-1)
    return out


def lengths_of(codes: Codes) -> Vector:
    """How long the vector of each line is; a few at a time, because as floats they take four times the room."""
    out = np.empty(len(codes), dtype=np.float32)
    for at in range(0, len(codes), _AT_ONCE):
        floats = codes[at : at + _AT_ONCE].astype(np.float32)
        np.sqrt(np.einsum("ij,ij->i", floats, floats), out=out[at : at + _AT_ONCE])
    return out


def line_cosines(codes: Codes, vector: Vector, lengths: Vector | None = None) -> Vector:
    """The cosine of each line with a vector; 0 for one without words."""
    if lengths is None:
        lengths = lengths_of(codes)
    out = np.zeros(len(codes), dtype=np.float32)
    np.divide(codes.astype(np.float32) @ vector, lengths, out=out, where=lengths > 0)
    return out


def _products(rows: Vector, vector: Vector) -> Vector:
    """Each row times a vector, without the threads of BLAS: on a busy machine they wait for each other too long."""
    return np.asarray(np.einsum("ij,j->i", rows, vector), dtype=np.float32)


def _distances(words: npt.NDArray[np.uint64], signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """In how many signs each row differs from the given ones."""
    wanted = _as_words(signs[None, :])[0]
    distance = np.zeros(len(words), dtype=np.uint16)
    for column, word in enumerate(wanted):
        distance += np.bitwise_count(words[:, column] ^ word)
    return distance


def _as_words(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Signs as 64-bit words, filled up with zeros; column after column, as they are compared."""
    missing = -signs.shape[1] % 8
    padded = np.pad(signs, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(signs)
    return np.asfortranarray(padded.view(np.uint64))


def _closest(distances: npt.NDArray[np.uint16], limit: int) -> npt.NDArray[np.intp]:
    """Positions of the smallest distances, smallest first; of equal ones the earlier first.

    There are few different distances, so counting them finds the edge faster than sorting does.
    """
    edge = int(np.searchsorted(np.bincount(distances).cumsum(), limit))
    near = np.flatnonzero(distances <= edge)
    return near[np.argsort(distances[near], kind="stable")][:limit]


def _top(scores: npt.NDArray[np.floating | np.integer], limit: int) -> npt.NDArray[np.intp]:
    """Positions of the highest scores, highest first; of equal ones the earlier first."""
    if limit < len(scores):
        edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        near = np.flatnonzero(scores >= edge)
    else:
        near = np.arange(len(scores))
    return near[np.argsort(-scores[near], kind="stable")][:limit]
