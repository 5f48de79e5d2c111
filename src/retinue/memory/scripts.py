"""Scripts that write words without spaces between them, so that neither words nor characters count as usual."""

from __future__ import annotations

import re

_SPACELESS = (
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u1000-\u109f"  # Burmese
    r"\u1780-\u17ff"  # Khmer
    r"\u3040-\u30ff"  # kana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # ideographs
    r"\uac00-\ud7af"  # Hangul
    r"\U00020000-\U0003ffff"  # rare ideographs
)
_CHARACTER = re.compile(f"[{_SPACELESS}]")
_RUN = re.compile(f"[{_SPACELESS}]+")


def count_spaceless(text: str) -> int:
    """How many characters of such scripts a text holds."""
    return 0 if text.isascii() else len(_CHARACTER.findall(text))


def spaceless_runs(text: str) -> list[str]:
    """The stretches of a text in such scripts."""
    return [] if text.isascii() else _RUN.findall(text)


def pair_up(text: str) -> list[str]:
    """The text's stretches in such scripts as overlapping pairs of characters; a lone character stays alone."""
    pairs: list[str] = []
    for run in spaceless_runs(text):
        pairs.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return pairs


def without_spaceless(text: str) -> str:
    """The text with such stretches blanked out, so that the words beside them stand alone."""
    return text if text.isascii() else _RUN.sub(" ", text)
