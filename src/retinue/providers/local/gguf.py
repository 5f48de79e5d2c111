"""Model files: their location, and the metadata in their GGUF header."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from retinue.core.errors import ModelError

DEMO_MODELS = frozenset({"smollm2-135m"})
MAX_WINDOW = 32_768
"""Memory use grows with the window; a longer one requires `contextWindow`."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 10_000
_MAX_STRING_BYTES = 1 << 20


class ModelFile(Struct, frozen=True):
    """The metadata of a model file."""

    path: Path
    architecture: str
    window: int
    chat_template: str
    pooling: int | None = None
    """The pooling type of an embedding model; None otherwise."""

    @property
    def calls_tools(self) -> bool:
        """Whether the model was trained to call tools: its chat template then uses them."""
        return "tools" in self.chat_template and "tool_call" in self.chat_template


def read_model_file(path: Path) -> ModelFile:
    """Read the header of a GGUF file; raise `ModelError` if it is invalid."""
    try:
        with path.open("rb") as file:
            facts = _read_facts(file)
    except (OSError, struct.error, OverflowError, ValueError) as error:
        raise ModelError(f"'{path.name}' is not a usable GGUF model file ({error}). Pull it again.") from error
    architecture = str(facts.get("general.architecture", ""))
    window = facts.get(f"{architecture}.context_length", 0)
    template = str(facts.get("tokenizer.chat_template", ""))
    pooling = facts.get(f"{architecture}.pooling_type")
    return ModelFile(
        path,
        architecture,
        window if isinstance(window, int) else 0,
        template,
        pooling if isinstance(pooling, int) else None,
    )


def _read_facts(file: BinaryIO) -> dict[str, str | int | float]:
    if file.read(4) != b"GGUF":
        raise ValueError("wrong first bytes")
    version, _tensors, entries = struct.unpack("<IQQ", file.read(20))
    if version not in (2, 3) or entries > _MAX_ENTRIES:
        raise ValueError(f"version {version}")
    facts: dict[str, str | int | float] = {}
    for _ in range(entries):
        name = _read_text(file)
        (kind,) = struct.unpack("<I", file.read(4))
        value = _read_value(file, kind)
        if value is not None:
            facts[name] = value
    return facts


def _read_text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MAX_STRING_BYTES:
        raise ValueError("a string is too long")
    return file.read(length).decode("utf-8", "replace")


def _read_value(file: BinaryIO, kind: int) -> str | int | float | None:
    """Read a value; lists (mostly the vocabulary) are skipped."""
    if kind == _STRING:
        return _read_text(file)
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        if inner in _SCALARS:
            file.seek(struct.calcsize(_SCALARS[inner]) * count, 1)
        elif inner == _STRING:
            for _ in range(count):
                (length,) = struct.unpack("<Q", file.read(8))
                file.seek(length, 1)
        else:
            raise ValueError("lists of lists")
        return None
    if kind not in _SCALARS:
        raise ValueError(f"kind {kind}")
    layout = "<" + _SCALARS[kind]
    (value,) = struct.unpack(layout, file.read(struct.calcsize(layout)))
    return value if isinstance(value, (int, float)) else None


def is_demo_model(name: str) -> bool:
    """Return whether a model is so small that it only shows that everything works (`local/demo.py`)."""
    return name.strip().lower().removesuffix(".gguf") in DEMO_MODELS


def find_model_file(folder: Path, name: str) -> Path | None:
    """Return the file of a model by its name without the suffix, ignoring case."""
    wanted = name.lower().removesuffix(".gguf")
    return next((path for path in list_model_files(folder) if path.stem.lower() == wanted), None)


def list_model_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf" and path.is_file())
    except OSError:
        return []
