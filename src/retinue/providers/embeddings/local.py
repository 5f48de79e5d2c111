"""Embeddings by a model file on this machine: GGUF through llama.cpp, ONNX through its runtime.

A file is loaded on first use. Each text is run separately: in a batch with others, quantised models return different
numbers, and an index must be reproducible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio.to_thread

from retinue.core.errors import ModelError
from retinue.providers.local.gguf import read_model_file
from retinue.providers.local.llama_cpp import load_llama, quiet_parameters, start_engine

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_EMBEDDING_WINDOW = 2_048
_WHOLE_TEXT = "sentence_embedding"
_SAMPLES, _SAMPLE_BYTES = 16, 65_536
_EMPTY = "-"
"""The placeholder for an empty text, which engines refuse."""


class EmbeddingEngine(Protocol):
    """A loaded model."""

    def embed(self, text: str) -> Sequence[float]: ...


class LocalEmbedder:
    """The embedder of one model file."""

    provider = "local"
    batch = 8
    takes_lines = False
    seconds = 600.0
    bulk = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._engine: EmbeddingEngine | None = None
        self._key: str | None = None
        self.model = path.name

    @property
    def key(self) -> str:
        """Identifies a file by samples of its content, not only by its name."""
        if self._key is None:
            self._key = sample_file(self._path)
        return self._key

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Sequence[float]]:
        return await anyio.to_thread.run_sync(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        with self._lock:
            if self._engine is None:
                self._engine = load_engine(self._path)
            return [self._engine.embed(text.strip() or _EMPTY) for text in texts]

    async def aclose(self) -> None:
        self._engine = None


def load_engine(path: Path) -> EmbeddingEngine:
    """Load a model file; raise `ModelError` if it is invalid, or if the required extra is not installed."""
    if any(part.startswith(("hf:", "http:", "https:")) for part in path.parts):
        raise ModelError(
            f"'{path}' is an address. Download the model and set its path in memorySearch.local.modelPath."
        )
    if path.is_dir():
        path = find_onnx(path)
    if not path.is_file():
        raise ModelError(f"There is no model at {path}. Check memorySearch.local.modelPath.")
    match path.suffix.lower():
        case ".gguf":
            return _Gguf(path)
        case ".onnx":
            return _Onnx(path)
        case other:
            raise ModelError(f"'{path.name}' ends in '{other}'. Models that embed texts are .gguf or .onnx files.")


def find_onnx(folder: Path) -> Path:
    """Return the model in a published folder: `model.onnx`, or the only ONNX file."""
    for place in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if place.is_file():
            return place
    found = sorted(folder.glob("*.onnx"))
    if len(found) != 1:
        raise ModelError(f"{folder} holds {len(found)} .onnx files. Name one in memorySearch.local.modelPath.")
    return found[0]


def sample_file(path: Path) -> str:
    """Return a short hash of a file's size and of samples of its content; "" if it cannot be read."""
    try:
        if path.is_dir():
            path = find_onnx(path)
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            for at in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * at // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    except (OSError, ModelError):
        return ""
    return digest.hexdigest()[:16]


class _Gguf:
    """A GGUF file in llama.cpp."""

    def __init__(self, path: Path) -> None:
        llama, facts = load_llama(), read_model_file(path)
        parameters = quiet_parameters(llama, path)
        parameters.embedding = True
        if facts.pooling is None:
            parameters.pooling_type = llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        # A text must fit into one physical batch.
        window = min(facts.window or MAX_EMBEDDING_WINDOW, MAX_EMBEDDING_WINDOW)
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = window
        self._server: Any = start_engine(llama, parameters, path)
        self._name = path.name

    def embed(self, text: str) -> Sequence[float]:
        while True:
            answer = self._server.handle_embeddings({"input": [text]})
            problem = answer.get("error") if isinstance(answer, dict) else {"message": "no answer"}
            if not problem:
                return _first_row(answer, self._name)
            message = str(problem.get("message", problem))
            if "too large" not in message or len(text) < 16:
                raise ModelError(f"'{self._name}' cannot embed: {message}")
            text = text[: len(text) * 2 // 3]


def _first_row(answer: Any, name: str) -> Sequence[float]:
    try:
        row: Sequence[float] = answer["data"][0]["embedding"]
    except (TypeError, KeyError, IndexError):
        raise ModelError(f"'{name}' returned no vector. It may not be an embedding model.") from None
    return row


class _Onnx:
    """An ONNX file with the tokenizer that was published with it."""

    _INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ModelError("ONNX models need the extra 'onnx'. Install it: pip install 'retinue[onnx]'") from None
        self._name = path.name
        self._tokenizer = _open_tokenizer(path)
        self._pooling = _read_pooling(path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # border: the runtime has no common class for its errors
            reason = str(error).splitlines()[0]
            raise ModelError(f"'{path.name}' is not an ONNX model that can be loaded: {reason}") from error
        outputs = [entry.name for entry in self._session.get_outputs()]
        self._output = _WHOLE_TEXT if _WHOLE_TEXT in outputs else outputs[0]
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        strange = [name for name in self._inputs if name not in self._INPUTS]
        if strange or "input_ids" not in self._inputs:
            raise ModelError(
                f"'{path.name}' requires the inputs {', '.join(self._inputs)}. An embedding model takes input_ids, "
                "attention_mask and token_type_ids."
            )

    def embed(self, text: str) -> Sequence[float]:
        import numpy as np

        encoded = self._tokenizer.encode(text)
        columns = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        given = {name: np.array([columns[name]], dtype=np.int64) for name in self._inputs}
        try:
            first = np.asarray(self._session.run([self._output], given)[0], dtype=np.float32)
        except Exception as error:  # border: the runtime has no common class for its errors
            raise ModelError(f"'{self._name}' cannot embed: {str(error).splitlines()[0]}") from error
        match first.ndim, self._pooling:
            case 2, _:
                row = first[0]
            case 3, "first":
                row = first[0, 0]
            case 3, _:
                row = first[0].mean(axis=0)
            case _:
                raise ModelError(
                    f"'{self._name}' returns an array of shape {first.shape}, which is not one vector per text."
                )
        vector: list[float] = row.tolist()
        return vector


def _open_tokenizer(model: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = _find_beside(model, "tokenizer.json")
    if path is None:
        raise ModelError(f"There is no tokenizer.json next to '{model.name}'. Add the one published with it.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # border: the library raises nothing narrower
        raise ModelError(f"{path} is not a tokenizer that can be loaded: {error}") from error
    longest = (tokenizer.truncation or {}).get("max_length") or 512
    tokenizer.enable_truncation(max_length=min(longest, MAX_EMBEDDING_WINDOW))
    tokenizer.no_padding()
    return tokenizer


def _read_pooling(model: Path) -> Literal["first", "mean"]:
    """Return the pooling of a model from its published settings: the first token's vector, or the mean."""
    path = _find_beside(model, "1_Pooling/config.json")
    try:
        found = json.loads(path.read_bytes()) if path else {}
    except (OSError, ValueError):
        found = {}
    return "first" if isinstance(found, dict) and found.get("pooling_mode_cls_token") is True else "mean"


def _find_beside(model: Path, name: str) -> Path | None:
    """Return a file in the model's folder or its parent, where files shared by all variants are published."""
    return next((path for folder in (model.parent, model.parent.parent) if (path := folder / name).is_file()), None)
