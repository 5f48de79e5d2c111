"""Markdown headings and code fences, line by line."""

from __future__ import annotations

import re

_MARKS = re.compile(r"(#{1,6})[ \t]+")
_FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))")


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
