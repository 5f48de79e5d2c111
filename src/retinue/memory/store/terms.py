"""The terms of texts as SQLite's full-text index sees them, for indexes that store their terms themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock

from msgspec import Struct

from retinue.memory.store.schema import TOKENIZER

_COLUMN_GAP = 1_000_000
"""The positions of the context begin here, so that no phrase spans text and context."""


class ChunkTerms(Struct, frozen=True):
    """The positions of each term of a text and its context, and the number of all of them."""

    positions: dict[str, list[int]]
    length: int


class TermReader:
    """Splits texts into terms with the tokenizer of SQLite's full-text index; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._base = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._base.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, context, tokenize='{TOKENIZER}')")
        self._base.execute("CREATE VIRTUAL TABLE seen USING fts5vocab(texts, instance)")

    def read(self, texts: Sequence[tuple[str, str]]) -> list[ChunkTerms]:
        """Return the terms of texts, each with its context."""
        found: list[dict[str, list[int]]] = [{} for _ in texts]
        with self._lock:
            self._base.execute("BEGIN")
            self._base.executemany(
                "INSERT INTO texts(rowid, text, context) VALUES (?, ?, ?)",
                [(row, text, context) for row, (text, context) in enumerate(texts, start=1)],
            )
            rows = self._base.execute('SELECT term, doc, col, "offset" FROM seen').fetchall()
            self._base.execute("ROLLBACK")
        for term, row, column, offset in rows:
            at = offset if column == "text" else _COLUMN_GAP + offset
            found[row - 1].setdefault(term, []).append(at)
        return [ChunkTerms(terms, sum(map(len, terms.values()))) for terms in found]

    def split(self, phrase: str) -> list[str]:
        """Return the terms of a phrase, in order."""
        (terms,) = self.read([(phrase, "")])
        return [term for _, term in sorted((at, term) for term, places in terms.positions.items() for at in places)]

    def close(self) -> None:
        self._base.close()


def read_pairs(pairs: str) -> ChunkTerms:
    """Return the terms of character pairs that are separated by spaces."""
    positions: dict[str, list[int]] = {}
    listed = pairs.split()
    for at, pair in enumerate(listed):
        positions.setdefault(pair, []).append(at)
    return ChunkTerms(positions, len(listed))
