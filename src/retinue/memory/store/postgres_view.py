"""One consistent state of the index in PostgreSQL, for searching."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from retinue.core.labels import Label
from retinue.memory.store.protocol import IndexIdentity, IndexTotals, Similarity, StoredChunk, Vector
from retinue.memory.store.terms import TermReader
from retinue.memory.store.vectors import LineTable, decode_codes, line_cosines
from retinue.memory.store.view import RevisionCache
from retinue.storage.postgres.server import Connection, read_statements, translated_errors

STATEMENTS = read_statements("retinue.memory.store", "postgres.sql")
GRAPH_DIMS = 256
EXACT_UP_TO = 50_000
"""Larger indexes are searched by the graph of pgvector, which may miss a near vector."""

Field = Literal[0, 1]
WORDS: Final = 0
PAIRS: Final = 1

_K1, _B = 1.2, 0.75
_MIN_WEIGHT = 1e-6
_NO_LIMIT = 1_000_000_000


class PostgresView:
    """One state of an index; valid as long as the transaction of its connection.

    `load_lines` returns the vectors of lines, or None if there are too many to compare all of them.
    """

    def __init__(
        self,
        connection: Connection,
        remembered: RevisionCache,
        dims: int | None,
        terms: TermReader,
        load_lines: Callable[[], LineTable | None],
    ) -> None:
        self._base = connection
        self._index = int(remembered.epoch)
        self._remembered = remembered
        self._dims = dims
        self._terms = terms
        self._load_lines = load_lines

    def identity(self) -> IndexIdentity | None:
        return self._remembered.identity

    def totals(self) -> IndexTotals:
        if self._remembered.totals is None:
            (row,) = self._rows("totals")
            self._remembered.totals = IndexTotals(*row)
        return self._remembered.totals

    def frequencies(self, stems: Sequence[str]) -> Mapping[str, int]:
        known = self._remembered.frequencies
        missing = [stem for stem in stems if stem not in known]
        if missing:
            found: dict[str, int] = dict(self._rows("frequencies", field=WORDS, terms=missing))
            known.update({stem: found.get(stem, 0) for stem in missing})
        return {stem: known[stem] for stem in stems}

    def find_words(self, words: Sequence[str], limit: int) -> list[int]:
        return self._find(WORDS, [self._terms.split(word) for word in words], limit)

    def find_exact(self, phrases: Sequence[str], limit: int) -> list[int]:
        return self._find(WORDS, [self._terms.split(phrase) for phrase in phrases], limit)

    def find_pairs(self, pairs: Sequence[str], limit: int) -> list[int]:
        return self._find(PAIRS, [pair.split() for pair in pairs], limit)

    def find_standing(self, limit: int) -> list[int]:
        return [row[0] for row in self._rows("list_standing", limit=limit)]

    def find_nearest(self, vector: Vector, limit: int) -> list[int]:
        if self._dims != len(vector):
            return []
        lines = self._load_lines()
        near = self._nearest_texts(vector, limit if lines is None else (limit + 1) // 2)
        if lines is not None:
            near += lines.nearest(vector, limit).tolist()
        order: dict[int, int] = {}
        for embedding in near:
            order.setdefault(embedding, len(order))
        rows = self._rows("chunks_of_vectors", embeddings=near)
        return [chunk for chunk, _ in sorted(rows, key=lambda row: (order[row[1]], row[0]))]

    def similarities(self, vector: Vector, ids: Sequence[int]) -> Mapping[int, Similarity]:
        if self._dims != len(vector):
            return {}
        rows = self._rows("similarities", vector=format_vector(vector), chunks=list(ids), dims=len(vector))
        lines = self._line_similarities(vector, sorted({embedding for _, embedding, _ in rows}))
        return {chunk: Similarity(float(score), lines.get(embedding, ())) for chunk, embedding, score in rows}

    def chunks(self, ids: Sequence[int]) -> list[StoredChunk]:
        return [_chunk(row) for row in self._rows("chunks", chunks=list(ids))]

    def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        with translated_errors():
            return self._base.execute(STATEMENTS[statement], {"index": self._index, **values}).fetchall()

    def _find(self, field: Field, phrases: Sequence[Sequence[str]], limit: int) -> list[int]:
        """Return the chunks that contain any of the phrases, ranked by BM25.

        If the time is up, the transaction goes on, so that what was found otherwise is still shown.
        """
        with translated_errors(), self._base.transaction():
            return self._rank(field, phrases, limit)

    def _rank(self, field: Field, phrases: Sequence[Sequence[str]], limit: int) -> list[int]:
        sizes = self._rows("field_size", field=field)
        if not sizes or not sizes[0][0]:
            return []
        chunks, length = sizes[0]
        average = length / chunks or 1.0
        singles = [phrase[0] for phrase in phrases if len(phrase) == 1]
        longer = [phrase for phrase in phrases if len(phrase) > 1]
        docs: dict[str, int] = dict(self._rows("frequencies", field=field, terms=singles)) if singles else {}
        known = [term for term in singles if docs.get(term)]
        ranked: dict[int, float] = {}
        if known:
            weights = [inverse_frequency(docs[term], chunks) for term in known]
            ranked = dict(
                self._rows(
                    "rank_terms",
                    field=field,
                    terms=known,
                    weights=weights,
                    average=average,
                    limit=_NO_LIMIT if longer else limit,
                )
            )
        for phrase in longer:
            for chunk, score in self._rank_phrase(field, phrase, chunks, average).items():
                ranked[chunk] = ranked.get(chunk, 0.0) + score
        return sorted(ranked, key=lambda chunk: (-ranked[chunk], chunk))[:limit]

    def _rank_phrase(self, field: Field, phrase: Sequence[str], chunks: int, average: float) -> dict[int, float]:
        rows = self._rows("read_postings", field=field, terms=list(dict.fromkeys(phrase)))
        places: dict[int, dict[str, list[int]]] = {}
        lengths: dict[int, int] = {}
        for chunk, term, positions, length in rows:
            places.setdefault(chunk, {})[term] = positions
            lengths[chunk] = length
        counts = {chunk: count_phrase(phrase, terms) for chunk, terms in places.items()}
        counts = {chunk: count for chunk, count in counts.items() if count}
        weight = inverse_frequency(len(counts), chunks)
        return {
            chunk: weight * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[chunk] / average))
            for chunk, count in counts.items()
        }

    def _nearest_texts(self, vector: Vector, limit: int) -> list[int]:
        if len(vector) == GRAPH_DIMS and self.totals().embedded > EXACT_UP_TO:
            # Other indexes are in the same graph: the scan goes on until enough vectors of this one were found.
            self._base.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            self._base.execute("SET LOCAL hnsw.ef_search = 400")
            name = "nearest_in_graph"
        else:
            name = "nearest_exactly"
        rows = self._rows(name, vector=format_vector(vector), dims=len(vector), limit=limit)
        return [row[0] for row in rows]

    def _line_similarities(self, vector: Vector, embeddings: Sequence[int]) -> dict[int, tuple[float, ...]]:
        lines = self._load_lines()
        if lines is not None:
            return lines.similarities(vector, embeddings)
        found = {}
        for embedding, codes in self._rows("lines_of_vectors", embeddings=list(embeddings)):
            cosines = line_cosines(decode_codes(codes, len(vector)), vector)
            found[embedding] = tuple(cosines.tolist())
        return found


def inverse_frequency(seen: int, chunks: int) -> float:
    """Return the weight of a term as SQLite's full-text index computes it."""
    return max(math.log((chunks - seen + 0.5) / (seen + 0.5)), _MIN_WEIGHT)


def count_phrase(phrase: Sequence[str], places: Mapping[str, Sequence[int]]) -> int:
    """Return how often the terms of a phrase are next to each other, in order."""
    starts = set(places[phrase[0]])
    for offset, term in enumerate(phrase[1:], start=1):
        starts &= {at - offset for at in places[term]}
    return len(starts)


def format_vector(vector: Vector) -> str:
    return "[" + ",".join(map(repr, np.asarray(vector, dtype=np.float32).tolist())) + "]"


def decode_identity(value: object) -> IndexIdentity | None:
    return msgspec.convert(value, IndexIdentity) if value is not None else None


def _chunk(row: Sequence[Any]) -> StoredChunk:
    key, path, source, ordinal, start, end, text, context, words, origin, day = row
    return StoredChunk(key, path, source, ordinal, start, end, text, context, words, Label.parse(origin), day)
