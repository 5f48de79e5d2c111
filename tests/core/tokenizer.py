"""A real tokenizer, for tests that compare with it."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def _encoding(vocabulary: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package reads its tables through a deprecated call
        import bpe_openai

        return bpe_openai.get_encoding(vocabulary)


def count_tokens(text: str, vocabulary: str = "o200k_base") -> int:
    """How many tokens `text` really is."""
    return len(_encoding(vocabulary).encode_ordinary(text))
