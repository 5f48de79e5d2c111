"""Embedding texts: the protocol of an embedder, the check of its vectors, and the built-in model."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from retinue.core.errors import ModelError, RetinueError
from retinue.memory.store.protocol import Vector

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from retinue.memory.embed_texts import BatchEmbedder
    from retinue.memory.settings import BatchSettings

MAX_TEXT_CHARS = 32_000
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_PORTION_CHARS = 100_000
_SHORT_QUERY = 2_000
"""Up to this many characters, embedding takes less time than switching to a thread."""


class EmbeddingFailed(ModelError):
    """Texts could not be embedded."""


class EmbeddingParts(Struct, frozen=True):
    """What an embedder is made of, from `memorySearch`."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    models: Path = Path()
    """The folder of local models."""
    local_model: str = ""
    """The path of a local model, relative to `models`."""
    batch: BatchSettings | None = None
    """The settings of bulk embedding, if it is enabled."""
    open_batches: Callable[[Any], BatchEmbedder] | None = None
    """Opens bulk embedding, if a plugin provides it for the provider."""


class Embedder(Protocol):
    """Embeds texts. `key` distinguishes embedders with the same provider and model but different vectors."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def batch(self) -> int:
        """The number of texts per call."""
        ...

    @property
    def takes_lines(self) -> bool:
        """Whether it is cheap enough to embed every line of a note in addition to the chunks."""
        ...

    @property
    def seconds(self) -> float:
        """The time limit of one call."""
        ...

    @property
    def bulk(self) -> BatchEmbedder | None:
        """The batch API for large numbers of texts, if there is one."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]] | Vector:
        """Return one row of numbers for each text; raise a `RetinueError` on failure."""
        ...

    async def aclose(self) -> None: ...


async def embed_checked(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> Vector:
    """Return unit vectors for texts; raise `EmbeddingFailed` if the result cannot be searched."""
    who = f"The embedder {embedder.provider}/{embedder.model}"
    try:
        with anyio.fail_after(embedder.seconds):
            found = await embedder.embed([_sendable(text[:MAX_TEXT_CHARS]) for text in texts], query=query)
    except TimeoutError:
        raise EmbeddingFailed(f"{who} did not answer within {embedder.seconds:g} s.") from None
    return check_vectors(found, len(texts), who)


def _sendable(text: str) -> str:
    """Return the text without lone surrogates, which tokenizers and requests do not accept."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


async def embed_in_portions(embedders: Sequence[Embedder], texts: Sequence[str]) -> tuple[str, Vector]:
    """Return the name of the first embedder that succeeds, and the vectors; raise `EmbeddingFailed` if none does."""
    failure = EmbeddingFailed("No embedder is configured: memorySearch.store.vector.enabled or .provider is off.")
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
    """The model of the package `wordllama`: an average of word vectors, without an API key or a download.

    Its weights are memory-mapped: a search reads only the rows it needs, and processes share them.
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
    """Yield the texts in groups whose tokens fit into memory easily."""
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
    """Write the average word vector of each text into its row; a text without words keeps its zeros.

    One text at a time, because the vectors of one text fit into the CPU cache and those of all texts do not.
    """
    table = words.widened(np.fromiter(chain.from_iterable(texts), dtype=np.intp))
    for row, ids in zip(rows, texts, strict=True):
        if ids:
            np.add.reduce(table.take(ids, axis=0, mode="clip"), axis=0, out=row)
            row /= len(ids)


class _Words:
    """The vectors of words. They are stored as 16-bit floats, which are slow to add, so each is widened once.

    The table of 32-bit floats is as large as the vocabulary, but only the rows in use take memory.
    """

    def __init__(self, narrow: npt.NDArray[np.float16]) -> None:
        self._narrow = narrow
        self._wide = np.empty(narrow.shape, dtype=np.float32)
        self._has = np.zeros(len(narrow), dtype=np.bool_)

    @property
    def dims(self) -> int:
        return int(self._narrow.shape[1])

    def widened(self, words: npt.NDArray[np.intp]) -> Vector:
        """Return the whole table, in which the rows of these words are filled."""
        known = np.minimum(words, len(self._narrow) - 1)
        new = np.unique(known[~self._has[known]])
        if len(new):
            # The flag is set last: two threads may widen the same word, but none may read a partial row.
            self._wide[new] = self._narrow[new]
            self._has[new] = True
        return self._wide


def _load_package() -> tuple[Tokenizer, _Words]:
    # The package itself is never imported, because it configures logging and loads training dependencies.
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise EmbeddingFailed("The package `wordllama` is not installed. Reinstall Retinue.")
    folder = Path(found.origin).parent
    try:
        from tokenizers import Tokenizer

        weights = map_safetensors(folder / _WEIGHTS, "embedding.weight")
        return Tokenizer.from_file(str(folder / _TOKENIZER)), _Words(weights)
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise EmbeddingFailed(f"The built-in model cannot be loaded: {error}. Reinstall `wordllama`.") from error


def map_safetensors(path: Path, name: str) -> npt.NDArray[np.float16]:
    """Return a memory-mapped 16-bit matrix of a safetensors file."""
    with path.open("rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    entry = header[name]
    if entry["dtype"] != "F16" or len(entry["shape"]) != 2:
        raise ValueError(f"{path} contains {entry['dtype']} {entry['shape']} instead of a 16-bit matrix")
    offset = 8 + size + entry["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=tuple(entry["shape"]))


def check_vectors(rows: object, count: int, who: str) -> Vector:
    """Return rows of numbers as unit vectors; raise `EmbeddingFailed` if they cannot be searched."""
    try:
        vectors = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise EmbeddingFailed(f"{who} did not return a list of vectors.") from None
    if vectors.ndim != 2 or len(vectors) != count or vectors.shape[1] == 0:
        raise EmbeddingFailed(f"{who} returned vectors of shape {vectors.shape} for {count} texts.")
    if not np.isfinite(vectors).all():
        raise EmbeddingFailed(f"{who} returned numbers that are not finite.")
    return normalise(vectors)


def normalise(vectors: Vector) -> Vector:
    """Scale rows to length one; a row of zeros is left unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0), dtype=np.float32)
