"""The size and structure of texts: an estimate of tokens, and Markdown headings and code fences.

Tokenizers need megabytes of tables, but all of them first split the text into words, numbers, runs of punctuation and
runs of white space, and most of these pieces become one token. The estimate splits the text in the same way with one
regular expression, counts the pieces, and adds a surcharge for each character of a dense script.

Compared with `o200k`, the error is at most 10 % for ordinary English, Markdown, source code, Chinese, Japanese and
Korean, and 25 % for Russian, German and Arabic. `cl100k`, an older vocabulary, agrees on English and code and needs up
to twice as many tokens for other scripts. Base64, random bytes and emoji are estimated at 60 % of their tokens or more.
The error is larger for unusual texts: lists of names or handles are up to 25 % too low, text in capitals 25 % too high;
invented words and rare ideographs can need more than twice the estimate.
"""

from __future__ import annotations

import re

_WORD_TAIL = r"(?:[a-z]{1,8}|[A-Z]{0,4})"
_MARK = r"[!-/:-@\[-`{-~]"
_FOREIGN = (
    r"[\u0400-\u052f]{1,4}"  # Cyrillic
    r"|[\u0370-\u03ff\u0530-\u08ff\u0900-\u10ff\u1e00-\u1fff]{1,3}"  # Greek, Semitic, Indic and their neighbours
    r"|[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7ff\uf900-\ufaff]+"  # Chinese, Japanese, Korean
)
_PIECE = re.compile(
    rf" (?:[A-Za-z]{_WORD_TAIL}|{_MARK}{{1,4}}[\r\n]*| *(?= ))"
    # A longer word is encoded data, which is split into pairs.
    rf"|[A-Za-z](?:(?<=[a-z]{{14}})[a-z]?|{_WORD_TAIL})"
    rf"|[\"'(./<@\[_$-][A-Za-z]{_WORD_TAIL}"
    rf"|{_MARK}{{1,3}}[\r\n]*"
    rf"|[\r\n]+|[0-9]{{1,3}}|\t+| ?(?:{_FOREIGN})"
    r"|[\u0080-\u036f]{1,3}"  # letters with diacritics
    r"|[^ ]| "
)


_MARKS = re.compile(r"(#{1,6})[ \t]+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


def _weights() -> bytes:
    """Additional hundredths of a token per UTF-16 unit, by its high byte."""
    table = bytearray(256)
    for first, last, weight in (
        (0x21, 0x2F, 60),  # symbols
        (0x30, 0x30, 70),  # kana
        (0x34, 0x4D, 160),  # rare ideographs
        (0x4E, 0x9F, 66),  # ideographs
        (0xAC, 0xD7, 38),  # Hangul
        (0xD8, 0xDF, 60),  # surrogates: emoji and all the other planes
        (0xE0, 0xF8, 160),  # private use
    ):
        table[first : last + 1] = bytes([weight]) * (last + 1 - first)
    return bytes(table)


_WEIGHTS = _weights()


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of `text`."""
    pieces = len(_PIECE.findall(text))
    if text.isascii():
        return pieces
    high_bytes = text.encode("utf-16-be", "surrogatepass")[::2]
    return pieces + round(sum(high_bytes.translate(_WEIGHTS)) / 100)


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which file names may contain and which can neither be stored nor sent to a model."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def read_heading(line: str) -> tuple[int, str] | None:
    """Return the level and text of a heading, without closing marks; None for any other line."""
    found = _MARKS.match(line)
    if found is None:
        return None
    words = line[found.end() :].rstrip()
    bare = words.rstrip("#")
    is_closed = bare != words and (not bare or bare[-1].isspace())
    return len(found[1]), bare.rstrip() if is_closed else words


def fence_after(line: str, fence: str) -> str:
    """Return the open code fence after a line, "" if none is open; `fence` is the one before the line.

    A block ends with a line of at least as many marks as it started with. A line with marks on both sides of a text
    is not a fence.
    """
    found = _FENCE.fullmatch(line)
    if found is None:
        return fence
    marks, behind = found[1] or found[3], found[2] or found[4] or ""
    if not fence:
        return marks
    return "" if marks.startswith(fence) and not behind.strip() else fence
