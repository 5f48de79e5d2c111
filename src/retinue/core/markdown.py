"""The headings of Markdown, line by line; what stands in a block of code is none."""

from __future__ import annotations

import re

_MARKS = re.compile(r"(#{1,6})[ \t]+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


def read_heading(line: str) -> tuple[int, str] | None:
    """The level and the words of a heading, without the marks that may close it; None for any other line."""
    found = _MARKS.match(line)
    if found is None:
        return None
    words = line[found.end() :].rstrip()
    bare = words.rstrip("#")
    is_closed = bare != words and (not bare or bare[-1].isspace())
    return len(found[1]), bare.rstrip() if is_closed else words


def fence_after(line: str, fence: str) -> str:
    """The marks that a block of code is fenced with after a line, "" outside of one; `fence` is what held before it.

    A block ends with at least as many of the marks that it began with, and nothing behind them. Three marks on both
    sides of words are no fence.
    """
    found = _FENCE.fullmatch(line)
    if found is None:
        return fence
    marks, behind = found[1] or found[3], found[2] or found[4] or ""
    if not fence:
        return marks
    return "" if marks.startswith(fence) and not behind.strip() else fence
