"""Where an index is kept: the narrow protocol that search and sync need, and the values that pass through it.

An implementation keeps files, their chunks and vectors. Reads happen on a `StoreView`, one consistent state from its
beginning to its end; each write is whole or does not happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from retinue.core.trust import Trust

Vector = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Source = Literal["memory", "sessions"]


class IndexIdentity(Struct, frozen=True):
    """What an index was made with; one that differs has to be made again."""

    provider: str
    model: str
    provider_key: str
    tokens: int
    overlap: int


class FileRecord(Struct, frozen=True):
    """A file as it was when it was indexed."""

    path: str
    source: Source
    hash: str
    size: int
    mtime_ns: int
    day: date | None = None


class NewChunk(Struct, frozen=True):
    """A chunk to keep. `hash` names the text that is embedded, `pairs` its characters in scripts without spaces."""

    start_line: int
    end_line: int
    text: str
    context: str
    hash: str
    words: int
    origin: Trust
    pairs: str = ""


class StoredChunk(Struct, frozen=True):
    """A chunk as it is kept, with what its file says about it."""

    id: int
    path: str
    source: Source
    ordinal: int
    start_line: int
    end_line: int
    text: str
    context: str
    words: int
    origin: Trust
    day: date | None


class Unembedded(Struct, frozen=True):
    """A text that has no vector yet."""

    hash: str
    context: str
    text: str

    @property
    def whole(self) -> str:
        return f"{self.context}\n{self.text}" if self.context else self.text


class Similarity(Struct, frozen=True):
    """Cosines with a question: of the whole chunk, and of each of its lines where lines have vectors."""

    chunk: float
    lines: tuple[float, ...] = ()

    @property
    def best(self) -> float:
        return max(self.chunk, *self.lines) if self.lines else self.chunk


class Totals(Struct, frozen=True):
    """How much there is."""

    files: int
    chunks: int
    words: int
    embedded: int


class StoreView(Protocol):
    """One state of the index, to be searched. Lists of ids are best first."""

    def identity(self) -> IndexIdentity | None:
        """What made this state; None for one that nothing was put into."""
        ...

    def totals(self) -> Totals: ...

    def frequencies(self, stems: Sequence[str]) -> Mapping[str, int]:
        """In how many chunks each stem occurs."""
        ...

    def find_words(self, words: Sequence[str], limit: int) -> list[int]:
        """Chunks with any of the words."""
        ...

    def find_exact(self, phrases: Sequence[str], limit: int) -> list[int]:
        """Chunks with any of the phrases, its words one after the other."""
        ...

    def find_pairs(self, pairs: Sequence[str], limit: int) -> list[int]:
        """Chunks with any of the pairs of characters."""
        ...

    def find_nearest(self, vector: Vector, limit: int) -> list[int]:
        """Chunks whose vectors, or those of one of their lines, point nearest to this one."""
        ...

    def similarities(self, vector: Vector, ids: Sequence[int]) -> Mapping[int, Similarity]:
        """How near chunks and their lines are to a vector; chunks without vectors are left out."""
        ...

    def chunks(self, ids: Sequence[int]) -> list[StoredChunk]: ...


class MemoryStore(Protocol):
    """An index that can be read by many and written by one."""

    @property
    def revision(self) -> int:
        """Grows with every change."""
        ...

    def reading(self, deadline: float | None = None) -> AbstractContextManager[StoreView]:
        """One consistent state. Past the deadline, in monotonic seconds, looking for words raises `TimeoutError`."""
        ...

    def identity(self) -> IndexIdentity | None: ...

    def adopt(self, identity: IndexIdentity) -> None:
        """Say what an index that is still empty is made with."""
        ...

    def files(self) -> dict[str, FileRecord]: ...

    def put(self, changes: Sequence[tuple[FileRecord, Sequence[NewChunk]]], removed: Sequence[str] = ()) -> None:
        """Replace these files with their chunks and drop the removed ones; vectors that are known are used at once."""
        ...

    def touch(self, files: Sequence[FileRecord]) -> None:
        """Note new times of files whose content is the same."""
        ...

    def unembedded(self, limit: int, skip: int = 0) -> list[Unembedded]:
        """What has no vector yet, in the order it was put in, without the first `skip`."""
        ...

    def count_unembedded(self) -> int: ...

    def embed(self, vectors: Mapping[str, Vector], lines: Mapping[str, Codes]) -> None:
        """Keep vectors, and those of lines, by the hash of their text and give them to the chunks that have it.

        A text that has a vector already keeps it.
        """
        ...

    def set_note(self, key: str, value: str) -> None: ...

    def note(self, key: str) -> str | None: ...

    def rebuilding(self, identity: IndexIdentity) -> AbstractContextManager[MemoryStore]:
        """An empty index beside this one, which takes its place at once when the block ends without an error."""
        ...

    def writing(self, *, wait: bool) -> AbstractContextManager[bool]:
        """The right to write, which one process holds at a time; False where another has it and `wait` is off."""
        ...

    def reset(self) -> None:
        """Throw everything away, also what is damaged."""
        ...

    def close(self) -> None: ...
