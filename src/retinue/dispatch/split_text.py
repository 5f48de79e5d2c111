"""Splitting an answer into messages that fit a chat's limit."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^(```+|~~~+)[^\n]*$", re.MULTILINE)
_SHORTEST = 40


def split_text(text: str, limit: int) -> tuple[str, ...]:
    """Split a text into pieces of at most `limit` characters.

    A piece ends after a paragraph if possible, else after a line, else after a word. A code block that is split is
    closed and opened again.
    """
    limit = max(limit, _SHORTEST)
    pieces = []
    rest = text.strip("\n")
    while len(rest) > limit:
        cut = _find_cut(rest, limit - 8)
        piece, rest = rest[:cut].rstrip(), rest[cut:].lstrip("\n")
        fence = _open_fence(piece)
        if fence is not None and len(fence) < limit // 4:
            close = fence[: len(fence) - len(fence.lstrip(fence[0]))][:7]
            piece, rest = f"{piece}\n{close}", f"{fence}\n{rest}"
        if piece:
            pieces.append(piece)
    return (*pieces, rest) if rest.strip() else tuple(pieces)


def _find_cut(text: str, limit: int) -> int:
    for mark in ("\n\n", "\n", ". ", " "):
        at = text.rfind(mark, limit // 3, limit)
        if at > 0:
            return at + len(mark)
    return limit


def _open_fence(piece: str) -> str | None:
    """Return the line that opened the code block in which a piece ends; None if it does not end in one."""
    opened: str | None = None
    for found in _FENCE.finditer(piece):
        if opened is None:
            opened = found[0].rstrip()
        elif found[0].strip()[0] == opened[0] and set(found[0].strip()) == {opened[0]}:
            opened = None
    return opened
