"""Embedding with model files: a tiny ONNX model made here, and a real GGUF one where it can be had."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from retinue.config.sections.gateway import PluginsSettings
from retinue.core.errors import ModelError
from retinue.memory.embedding import BuiltInEmbedder, embed_checked
from retinue.memory.settings import MemorySearchSettings
from retinue.plugins.loading import load_registry
from retinue.providers.embeddings.local import LocalEmbedder, load_engine
from retinue.runtime.memory.embedders import make_embedders
from retinue.security.secrets import Secrets
from retinue.structs.decode import decode

pytestmark = pytest.mark.anyio
needs_llama = pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the extra 'local' is missing")
needs_onnx = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="the extra 'onnx' is missing")

WORDS = ("[UNK]", "cat", "dog", "tax", "form")
TABLE = np.array([[0, 0, 1], [1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.8, 0.2]], dtype=np.float32)


def write_onnx(folder: Path, *, inputs: Sequence[str] = ("input_ids", "attention_mask"), pooled: bool = False) -> Path:
    """A model whose numbers for a word are its row in a table; with `pooled` it gives one vector for the text."""
    from onnx import TensorProto, checker, helper, numpy_helper, save

    folder.mkdir(parents=True, exist_ok=True)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["words"])]
    outputs = [helper.make_tensor_value_info("words", TensorProto.FLOAT, [None, None, 3])]
    if pooled:
        nodes.append(helper.make_node("ReduceSum", ["words", "axis"], ["sentence_embedding"], keepdims=0))
        outputs.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [None, 3]))
    tables = [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [None, None]) for name in inputs],
        outputs,
        tables if pooled else tables[:1],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    save(model, folder / "model.onnx")
    return folder / "model.onnx"


def write_tokenizer(folder: Path, longest: int = 8) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_truncation(max_length=longest)
    tokenizer.enable_padding(length=longest)
    tokenizer.save(str(folder / "tokenizer.json"))


@needs_onnx
async def test_an_onnx_model_embeds_by_the_average_of_words(tmp_path: Path) -> None:
    path = write_onnx(tmp_path)
    write_tokenizer(tmp_path)
    embedder = LocalEmbedder(path)
    both, alone = await embedder.embed(["cat dog", "tax"])
    assert both == pytest.approx([0.95, 0.05, 0.0])
    assert alone == pytest.approx([0.0, 1.0, 0.0])
    cat, dog, tax = await embed_checked(embedder, ["cat", "dog", "tax form"])
    assert cat @ dog > 0.9 > 0.2 > cat @ tax
    await embedder.aclose()


@needs_onnx
async def test_a_text_has_the_same_vector_beside_any_other(tmp_path: Path) -> None:
    embedder = LocalEmbedder(write_onnx(tmp_path))
    write_tokenizer(tmp_path)
    (alone,) = await embedder.embed(["cat form"])
    beside = await embedder.embed(["tax tax tax tax tax", "cat form", ""])
    assert beside[1] == alone


@needs_onnx
async def test_the_vector_of_the_whole_text_is_taken_where_the_model_gives_one(tmp_path: Path) -> None:
    embedder = LocalEmbedder(write_onnx(tmp_path, pooled=True))
    write_tokenizer(tmp_path)
    assert await embedder.embed(["cat cat"]) == [pytest.approx([2.0, 0.0, 0.0])]


@needs_onnx
async def test_a_model_may_say_that_its_first_word_counts(tmp_path: Path) -> None:
    model = write_onnx(tmp_path / "onnx")
    write_tokenizer(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert await LocalEmbedder(model).embed(["tax cat"]) == [pytest.approx([0.0, 1.0, 0.0])]


@needs_onnx
async def test_a_folder_as_models_are_published(tmp_path: Path) -> None:
    write_onnx(tmp_path / "tiny" / "onnx")
    write_tokenizer(tmp_path / "tiny")
    assert len(await LocalEmbedder(tmp_path / "tiny").embed(["cat"])) == 1


@needs_onnx
async def test_a_text_longer_than_the_model_takes_is_cut(tmp_path: Path) -> None:
    embedder = LocalEmbedder(write_onnx(tmp_path))
    write_tokenizer(tmp_path, longest=4)
    assert await embedder.embed(["cat " * 4 + "tax " * 400]) == [pytest.approx([1.0, 0.0, 0.0])]


@needs_onnx
def test_a_model_that_wants_more_than_a_text_is_refused(tmp_path: Path) -> None:
    path = write_onnx(tmp_path, inputs=("input_ids", "pixel_values"))
    write_tokenizer(tmp_path)
    with pytest.raises(ModelError, match="pixel_values"):
        load_engine(path)


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("gone.gguf", None, "There is no model at"),
        ("gone.onnx", None, "There is no model at"),
        ("weights.bin", b"x", "ends in '.bin'"),
        pytest.param("bad.gguf", b"nonsense", "not a usable GGUF", marks=needs_llama),
        pytest.param("bad.onnx", b"nonsense", "not an ONNX model", marks=needs_onnx),
    ],
)
async def test_a_file_that_is_no_model_is_told(tmp_path: Path, name: str, data: bytes | None, complaint: str) -> None:
    write_tokenizer(tmp_path)
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError, match=complaint):
        await LocalEmbedder(tmp_path / name).embed(["x"])


@needs_onnx
def test_a_missing_or_broken_tokenizer_is_told(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "a" / "b")
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load_engine(path)
    (path.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="not a tokenizer"):
        load_engine(path)


def test_a_folder_without_a_model_and_an_address_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds 0 \.onnx"):
        load_engine(tmp_path)
    with pytest.raises(ModelError, match="is an address"):
        load_engine(tmp_path / "hf:org/model/file.gguf")


@pytest.mark.parametrize(
    ("module", "extra", "name"), [("onnxruntime", "onnx", "m.onnx"), ("xllamacpp", "local", "m.gguf")]
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, name: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError, match=rf"retinue\[{extra}\]"):
        load_engine(tmp_path / name)


def test_another_file_of_the_same_name_has_another_key(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    data = bytearray(3_000_000)
    (tmp_path / "a" / "m.gguf").write_bytes(data)
    (tmp_path / "b" / "m.gguf").write_bytes(data)
    one, other = (LocalEmbedder(tmp_path / folder / "m.gguf") for folder in "ab")
    assert one.key == other.key != ""
    data[-5] = 1
    (tmp_path / "b" / "m.gguf").write_bytes(data)
    assert LocalEmbedder(tmp_path / "b" / "m.gguf").key != one.key
    assert LocalEmbedder(tmp_path / "none.gguf").key == ""


def test_a_relative_path_is_looked_for_among_the_models(tmp_path: Path) -> None:
    def made(**local: str) -> object:
        settings = decode(MemorySearchSettings, {"local": local})
        (embedder,) = make_embedders(settings, Secrets({}), tmp_path / "models", None, load_registry(PluginsSettings()))
        return embedder

    assert isinstance(made(), BuiltInEmbedder)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf").write_bytes(b"x")
    named = made(modelPath="m.gguf")
    assert isinstance(named, LocalEmbedder)
    assert named.key
    elsewhere = made(modelPath="m.gguf", modelCacheDir=str(tmp_path))
    assert isinstance(elsewhere, LocalEmbedder)
    assert not elsewhere.key


@pytest.mark.slow
@needs_llama
async def test_a_gguf_model_embeds(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.providers.embeddings.local.MAX_EMBEDDING_WINDOW", 256)  # 2,048 take long
    embedder = LocalEmbedder(models / "smollm2-135m.gguf")
    first = await embedder.embed(["The cat sleeps on the sofa.", "", "word " * 300])
    (again,) = await embedder.embed(["The cat sleeps on the sofa."])
    assert {len(row) for row in first} == {576}
    assert first[0] == pytest.approx(again, abs=1e-5)
    assert all(math.isfinite(number) for row in first for number in row)
    cat, pet, tax = await embed_checked(embedder, ["the cat is ill", "our cat is sick", "tax return deadline"])
    assert cat @ pet > cat @ tax
    await embedder.aclose()
