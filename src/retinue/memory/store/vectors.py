"""Vector tables in memory: the vectors themselves if there are few, only their signs if there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from retinue.memory.store.protocol import Codes, Vector

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
