"""Model files tell what they are."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from retinue.core.errors import ModelError
from retinue.providers.local.gguf import find_model_file, read_model_file


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path: Path, *, window: int, template: str) -> None:
    """A file with the head of a model and nothing behind it."""
    entries = [
        _text("general.architecture") + struct.pack("<I", 8) + _text("llama"),
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + _text("<s>") + _text("word"),
        _text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0.5, 1.0),
        _text("llama.context_length") + struct.pack("<II", 4, window),
        _text("tokenizer.chat_template") + struct.pack("<I", 8) + _text(template),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))


def test_the_head_is_read_past_the_vocabulary(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", window=8_192, template="{{ tools }} <tool_call>")
    facts = read_model_file(tmp_path / "a.gguf")
    assert (facts.architecture, facts.window, facts.calls_tools) == ("llama", 8_192, True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGUF" + b"\xff" * 40,
        b"not a model",
        b"GGUF\x03\0\0\0" + b"\x01" * 60,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + _text("a") + struct.pack("<IIQ", 9, 10, 2**62),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + _text("a") + struct.pack("<IIQQ", 9, 8, 1, 2**64 - 1),
    ],
)
def test_a_damaged_head_is_an_error_that_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"a\.gguf"):
        read_model_file(tmp_path / "a.gguf")


def test_files_are_found_by_name_in_any_case(tmp_path: Path) -> None:
    write_gguf(tmp_path / "Model-A.gguf", window=1, template="")
    write_gguf(tmp_path / "LOUD.GGUF", window=1, template="")
    assert find_model_file(tmp_path, "loud") == tmp_path / "LOUD.GGUF"
    assert find_model_file(tmp_path, "model-a") == tmp_path / "Model-A.gguf"
    assert find_model_file(tmp_path, "../Model-A") is None
    assert find_model_file(tmp_path / "nowhere", "model-a") is None
