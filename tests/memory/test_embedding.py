"""The built-in model, and what is refused from any other."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from retinue.memory.embedding import BuiltInEmbedder, EmbeddingFailed, embed_checked, normalise
from retinue.memory.store.protocol import Vector

pytestmark = pytest.mark.anyio

TEXTS = [
    "The cat sleeps on the sofa.",
    "Überraschung für Zoë: 東京 is far away 🎉",
    "def parse(x: int) -> str:\n    return f'{x!r}'",
    "word " * 900,
    "a",
]


class Fixed:
    """An embedder that always answers the same."""

    provider = "fixed"
    model = "m"
    key = ""
    batch = 8
    takes_lines = False
    seconds = 5.0
    bulk = None

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[Sequence[float]] | Vector:
        return self.answer  # type: ignore[return-value]

    async def aclose(self) -> None:
        pass


@pytest.mark.slow
def test_the_vectors_are_those_of_the_package_itself() -> None:
    # Importing the package sets up logging for everybody; that is undone for the other tests.
    handlers, level = list(logging.root.handlers), logging.root.level
    import wordllama  # type: ignore[import-untyped]

    logging.root.handlers, logging.root.level = handlers, level
    folder = Path(wordllama.__file__).parent
    theirs = wordllama.WordLlama.load(cache_dir=folder, disable_download=True).embed(TEXTS, norm=True)
    ours = normalise(BuiltInEmbedder().embed_now(TEXTS))
    assert np.abs(ours - theirs).max() < 1e-5


async def test_meaning_is_nearer_than_chance() -> None:
    embedder = BuiltInEmbedder()
    cat, pet, tax = await embed_checked(embedder, ["the cat is ill", "our pet is sick", "tax return deadline"])
    assert cat @ pet > cat @ tax + 0.1
    await embedder.aclose()


async def test_a_text_without_words_is_near_to_nothing() -> None:
    (nothing,) = await embed_checked(BuiltInEmbedder(), [""])
    assert not nothing.any()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([[1.0], [2.0]], "shape"),
        ([], "shape"),
        ([[]], "shape"),
        ([1.0], "shape"),
        (None, "did not return a list of vectors|shape"),
        ([["a", "b"]], "did not return a list of vectors"),
        ([[1.0, 2.0], [3.0]], "did not return a list of vectors|shape"),
    ],
)
async def test_anything_but_one_finite_vector_a_text_is_refused(answer: object, complaint: str) -> None:
    with pytest.raises(EmbeddingFailed, match=complaint):
        await embed_checked(Fixed(answer), ["one text"])


async def test_vectors_come_out_with_length_one() -> None:
    (row,) = await embed_checked(Fixed([[3.0, 4.0]]), ["x"])
    assert row.tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.slow
def test_nothing_heavy_is_loaded_for_it() -> None:
    code = (
        "import sys; from retinue.memory.embedding import BuiltInEmbedder; BuiltInEmbedder().embed_now(['x']);"
        "print(sorted({'wordllama', 'torch', 'huggingface_hub', 'safetensors'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
