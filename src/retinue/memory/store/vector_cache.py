"""The vectors of the index in memory, loaded by the first search that needs them."""

# ruff: noqa: S608 -- only our own table names and placeholders are inserted into statements

from __future__ import annotations

import sqlite3
from threading import Lock

import numpy as np
from msgspec import Struct

from retinue.memory.store.schema import damage_reported
from retinue.memory.store.vectors import FLOATS_UP_TO, LINES_UP_TO, FloatTable, Ids, LineTable, SignTable, decode_codes

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
