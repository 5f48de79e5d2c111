"""The token estimate against real tokenizers."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.text import estimate_tokens
from tests.core import token_samples as samples
from tests.core.tokenizer import count_tokens

NOISE = random.Random(7)


WESTERN = {
    "english": samples.ENGLISH,
    "markdown": samples.MARKDOWN,
    "python": samples.PYTHON,
    "json": samples.JSON,
    "typescript": samples.TYPESCRIPT,
}
DENSE = {
    "chinese": samples.CHINESE,
    "japanese": samples.JAPANESE,
    "korean": samples.KOREAN,
    "mixed": samples.MIXED,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*WESTERN, *DENSE])
def test_is_within_ten_per_cent_of_o200k(kind: str) -> None:
    text = (WESTERN | DENSE)[kind]
    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.10)


@pytest.mark.parametrize("kind", WESTERN)
def test_is_within_ten_per_cent_of_cl100k_on_english_and_code(kind: str) -> None:
    text = WESTERN[kind]
    assert estimate_tokens(text) == pytest.approx(count_tokens(text, "cl100k_base"), rel=0.10)


@pytest.mark.parametrize("kind", DENSE)
def test_cl100k_charges_dense_scripts_at_most_twice_as_much(kind: str) -> None:
    text = DENSE[kind]
    assert count_tokens(text, "cl100k_base") / 2 <= estimate_tokens(text) <= count_tokens(text, "cl100k_base") * 1.1


@pytest.mark.parametrize("text", [samples.RUSSIAN, samples.GERMAN, samples.ARABIC], ids=["russian", "german", "arabic"])
def test_is_within_a_quarter_on_other_scripts(text: str) -> None:
    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.25)


STRANGE = {
    "base64": base64.b64encode(NOISE.randbytes(1500)).decode(),
    "hex": NOISE.randbytes(1500).hex(),
    "latin-1 bytes": NOISE.randbytes(1500).decode("latin-1"),
    "broken utf-8": NOISE.randbytes(1500).decode("utf-8", "replace"),
    "one endless word": "".join(NOISE.choices("abcdefghijklmnopqrstuvwxyz", k=1500)),
    "printable noise": "".join(chr(NOISE.randrange(33, 127)) for _ in range(1500)),
    "emoji": "".join(chr(NOISE.randrange(0x1F300, 0x1F650)) for _ in range(500)),
    "families and flags": "👨‍👩‍👧‍👦🏳️‍🌈🇩🇪" * 60,
    "numbers": " ".join(str(NOISE.randrange(10**7)) for _ in range(300)),
}


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize("kind", STRANGE)
def test_never_takes_strange_input_for_much_less_than_it_costs(kind: str, vocabulary: str) -> None:
    assert estimate_tokens(STRANGE[kind]) >= 0.6 * count_tokens(STRANGE[kind], vocabulary)


def test_nothing_costs_nothing() -> None:
    assert estimate_tokens("") == 0


@given(st.text())
def test_any_text_has_an_estimate_that_grows_when_it_is_doubled(text: str) -> None:
    assert estimate_tokens(f"{text}\n{text}") >= estimate_tokens(text) >= 0


def test_lone_surrogates_from_a_broken_file_name_are_counted() -> None:
    assert estimate_tokens("a\udc80b") > 0
