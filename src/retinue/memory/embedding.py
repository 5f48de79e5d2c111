"""Turning texts into vectors: the protocol, the check of what comes back, and the built-in model."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
import numpy as np
import numpy.typing as npt

from retinue.core.errors import RetinueError
from retinue.memory.errors import EmbeddingFailed
from retinue.memory.store.protocol import Vector

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from retinue.memory.sync.batches import BatchEmbedder

MAX_TEXT_CHARS = 32_000
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_PORTION_CHARS = 100_000
_SHORT_QUERY = 2_000
"""So many characters are embedded faster than a thread is woken for them."""


class Embedder(Protocol):
    """Something that embeds texts. `key` tells apart two that share provider and model but not their vectors."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def batch(self) -> int:
        """How many texts to give at once."""
        ...

    @property
    def takes_lines(self) -> bool:
        """Whether it is cheap enough to embed every line of a note besides the chunks."""
        ...

    @property
    def seconds(self) -> float:
        """How long one call may take."""
        ...

    @property
    def bulk(self) -> BatchEmbedder | None:
        """The way to embed very many texts, where there is another."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]] | Vector:
        """One row of numbers for each text; raises a `RetinueError` where that cannot be done."""
        ...

    async def aclose(self) -> None: ...


async def embed_checked(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> Vector:
    """Vectors of length one for texts; raises `EmbeddingFailed` for anything that cannot be searched with."""
    who = f"The embedder {embedder.provider}/{embedder.model}"
    try:
        with anyio.fail_after(embedder.seconds):
            found = await embedder.embed([_sendable(text[:MAX_TEXT_CHARS]) for text in texts], query=query)
    except TimeoutError:
        raise EmbeddingFailed(f"{who} did not answer within {embedder.seconds:g} s.") from None
    return check_vectors(found, len(texts), who)


def _sendable(text: str) -> str:
    """The text without half a surrogate pair, which no tokenizer reads and no request can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


async def embed_in_portions(embedders: Sequence[Embedder], texts: Sequence[str]) -> tuple[str, Vector]:
    """Vectors of any number of texts by the first embedder that can, and its name; raises `EmbeddingFailed`."""
    failure = EmbeddingFailed("Nobody embeds texts here: memorySearch.store.vector.enabled or .provider is off.")
    for embedder in embedders:
        portions = [texts[at : at + embedder.batch] for at in range(0, len(texts), embedder.batch)]
        try:
            found = [await embed_checked(embedder, portion) for portion in portions]
        except RetinueError as error:
            failure = error if isinstance(error, EmbeddingFailed) else EmbeddingFailed(str(error))
            continue
        return f"{embedder.provider}/{embedder.model}", np.concatenate(found)
    raise failure


class BuiltInEmbedder:
    """The model that comes with the package `wordllama`: an average of word vectors, no key, no download.

    Its weights are mapped, not read: a search touches the few rows it needs, and processes share them.
    """

    provider = "local"
    model = "wordllama-l2-supercat-256"
    key = ""
    batch = 256
    takes_lines = True
    seconds = 120.0
    bulk = None

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: tuple[Tokenizer, _Words] | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vector:
        if query and self._loaded is not None and sum(map(len, texts)) <= _SHORT_QUERY:
            return self.embed_now(texts)
        return await anyio.to_thread.run_sync(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> Vector:
        tokenizer, words = self._load()
        rows = np.zeros((len(texts), words.dims), dtype=np.float32)
        at = 0
        for portion in _portions(texts):
            found = tokenizer.encode_batch_fast(portion, add_special_tokens=False)
            _pool([encoding.ids for encoding in found], words, rows[at : at + len(portion)])
            at += len(portion)
        return rows

    async def aclose(self) -> None:
        with self._lock:
            self._loaded = None

    def _load(self) -> tuple[Tokenizer, _Words]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load_package()
            return self._loaded


def _portions(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in runs small enough that the words of each fit into memory many times over."""
    run: list[str] = []
    size = 0
    for text in texts:
        if run and size + len(text) > _PORTION_CHARS:
            yield run
            run, size = [], 0
        run.append(text)
        size += len(text)
    if run:
        yield run


def _pool(texts: Sequence[Sequence[int]], words: _Words, rows: Vector) -> None:
    """Put the average of the words of each text into its row; a text without words keeps its zeros.

    Text by text: what one text needs fits into the processor's cache, what all of them need does not.
    """
    table = words.widened(np.fromiter(chain.from_iterable(texts), dtype=np.intp))
    for row, ids in zip(rows, texts, strict=True):
        if ids:
            np.add.reduce(table.take(ids, axis=0, mode="clip"), axis=0, out=row)
            row /= len(ids)


class _Words:
    """The vectors of words. They are kept in 16 bits, which is slow to reckon with, so a word is widened once.

    The wide table is as large as the vocabulary, but only the rows in use take memory.
    """

    def __init__(self, narrow: npt.NDArray[np.float16]) -> None:
        self._narrow = narrow
        self._wide = np.empty(narrow.shape, dtype=np.float32)
        self._has = np.zeros(len(narrow), dtype=np.bool_)

    @property
    def dims(self) -> int:
        return int(self._narrow.shape[1])

    def widened(self, words: npt.NDArray[np.intp]) -> Vector:
        """The whole table, of which the rows of these words can be used."""
        known = np.minimum(words, len(self._narrow) - 1)
        new = np.unique(known[~self._has[known]])
        if len(new):
            # The mark comes last: two threads may widen the same word, none may read it half done.
            self._wide[new] = self._narrow[new]
            self._has[new] = True
        return self._wide


def _load_package() -> tuple[Tokenizer, _Words]:
    # The package itself is never imported: that would set up logging and load a trainer's dependencies.
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise EmbeddingFailed("The package `wordllama` is not installed. Reinstall Retinue to get it back.")
    folder = Path(found.origin).parent
    try:
        from tokenizers import Tokenizer

        weights = map_safetensors(folder / _WEIGHTS, "embedding.weight")
        return Tokenizer.from_file(str(folder / _TOKENIZER)), _Words(weights)
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise EmbeddingFailed(f"The built-in model cannot be loaded: {error}. Reinstall `wordllama`.") from error


def map_safetensors(path: Path, name: str) -> npt.NDArray[np.float16]:
    """A 16-bit matrix of a safetensors file, mapped into memory."""
    with path.open("rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    entry = header[name]
    if entry["dtype"] != "F16" or len(entry["shape"]) != 2:
        raise ValueError(f"{path} holds {entry['dtype']} {entry['shape']} where a 16-bit matrix is expected")
    offset = 8 + size + entry["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=tuple(entry["shape"]))


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
