"""The protocol of an index store, and the values that it stores.

A store contains files, their chunks and vectors. Reads use an `IndexView`, one consistent state; writes are atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.core.labels import Label

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
    Codes = npt.NDArray[np.int8]
else:
    # Importing numpy costs a quarter of a one-shot turn, and most turns search no memory.
    Vector = Codes = Any
Source = Literal["memory", "sessions"]


class IndexUnusable(StorageError):
    """The database of an index cannot be used."""


class IndexDamaged(IndexUnusable):
    """The database is corrupt or of another version; all of it can be rebuilt from the notes."""


class IndexIdentity(Struct, frozen=True):
    """The model and chunking of an index; if they differ from the configuration, the index is rebuilt."""

    provider: str
    model: str
    provider_key: str
    tokens: int
    overlap: int


class FileRecord(Struct, frozen=True):
    """The state of a file when it was indexed."""

    path: str
    source: Source
    hash: str
    size: int
    mtime_ns: int
    day: date | None = None


class NewChunk(Struct, frozen=True):
    """A chunk to store. `hash` identifies the embedded text; `pairs` are its character pairs.

    `standing` is set if the owner gives an instruction or states a preference in it.
    """

    start_line: int
    end_line: int
    text: str
    context: str
    hash: str
    words: int
    origin: Label
    pairs: str = ""
    standing: Literal["instruction", "preference"] | None = None


class StoredChunk(Struct, frozen=True):
    """A stored chunk, with the metadata of its file."""

    id: int
    path: str
    source: Source
    ordinal: int
    start_line: int
    end_line: int
    text: str
    context: str
    words: int
    origin: Label
    day: date | None


class UnembeddedText(Struct, frozen=True):
    """A text without a vector."""

    hash: str
    context: str
    text: str

    @property
    def whole(self) -> str:
        return f"{self.context}\n{self.text}" if self.context else self.text


class Similarity(Struct, frozen=True):
    """Cosines with the query: of the whole chunk, and of each line if lines have vectors."""

    chunk: float
    lines: tuple[float, ...] = ()

    @property
    def best(self) -> float:
        return max(self.chunk, *self.lines) if self.lines else self.chunk


class IndexTotals(Struct, frozen=True):
    """The number of files, chunks, words and embedded chunks."""

    files: int
    chunks: int
    words: int
    embedded: int


class IndexView(Protocol):
    """One state of the index, for searching. Lists of ids are sorted, best first."""

    def identity(self) -> IndexIdentity | None:
        """Return the identity of the index; None if it is empty."""
        ...

    def totals(self) -> IndexTotals: ...

    def frequencies(self, stems: Sequence[str]) -> Mapping[str, int]:
        """Return the number of chunks that contain each stem."""
        ...

    def find_words(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the chunks that contain any of the words."""
        ...

    def find_exact(self, phrases: Sequence[str], limit: int) -> list[int]:
        """Return the chunks that contain any of the phrases."""
        ...

    def find_pairs(self, pairs: Sequence[str], limit: int) -> list[int]:
        """Return the chunks that contain any of the character pairs."""
        ...

    def find_standing(self, limit: int) -> list[int]:
        """Return the chunks with instructions and preferences of the owner, the newest first."""
        ...

    def find_nearest(self, vector: Vector, limit: int) -> list[int]:
        """Return the chunks whose vector, or that of one of their lines, is nearest to this one."""
        ...

    def similarities(self, vector: Vector, ids: Sequence[int]) -> Mapping[int, Similarity]:
        """Return the cosines of chunks and their lines with a vector; chunks without a vector are omitted."""
        ...

    def chunks(self, ids: Sequence[int]) -> list[StoredChunk]: ...


class IndexStore(Protocol):
    """An index with many readers and one writer."""

    @property
    def revision(self) -> int:
        """A number that grows with every change."""
        ...

    def reading(self, deadline: float | None = None) -> AbstractContextManager[IndexView]:
        """Return one consistent state. After the deadline (monotonic seconds) a text search raises `TimeoutError`."""
        ...

    def identity(self) -> IndexIdentity | None: ...

    def adopt(self, identity: IndexIdentity) -> None:
        """Set the identity of an empty index."""
        ...

    def files(self) -> dict[str, FileRecord]: ...

    def put(self, changes: Sequence[tuple[FileRecord, Sequence[NewChunk]]], removed: Sequence[str] = ()) -> None:
        """Replace files and their chunks, and delete the removed ones; cached vectors are used at once."""
        ...

    def touch(self, files: Sequence[FileRecord]) -> None:
        """Record the new size and time of files whose content is unchanged."""
        ...

    def unembedded(self, limit: int, skip: int = 0) -> list[UnembeddedText]:
        """Return texts without a vector, in order of insertion, without the first `skip`."""
        ...

    def count_unembedded(self) -> int: ...

    def embed(self, vectors: Mapping[str, Vector], lines: Mapping[str, Codes]) -> None:
        """Store vectors of texts and of their lines by the hash of the text.

        A text that already has a vector keeps it.
        """
        ...

    def prune_cache(self, most: int) -> None:
        """Delete the oldest unused vectors, so that at most `most` of them are kept for texts that may return."""
        ...

    def set_meta(self, key: str, value: str) -> None: ...

    def get_meta(self, key: str) -> str | None: ...

    def rebuilding(self, identity: IndexIdentity) -> AbstractContextManager[IndexStore]:
        """Return an empty index that atomically replaces this one when the block ends without an error."""
        ...

    def writing(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Acquire the write lock; the value is False if another process has it and `wait` is off."""
        ...

    def reset(self) -> None:
        """Delete the index, even if it is damaged, and create an empty one."""
        ...

    def close(self) -> None: ...
