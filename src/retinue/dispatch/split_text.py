"""An answer in the pieces that a chat takes."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^(```+|~~~+)[^\n]*$", re.MULTILINE)
_SHORTEST = 40


def split_text(text: str, limit: int) -> tuple[str, ...]:
    """A text in pieces of at most `limit` characters, cut where it hurts least.

    A piece ends after a paragraph, else a line, else a word. A code block that is cut is closed and opened again.
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
    """The line that began the code block in which a piece ends; None where it ends in none."""
    opened: str | None = None
    for found in _FENCE.finditer(piece):
        if opened is None:
            opened = found[0].rstrip()
        elif found[0].strip()[0] == opened[0] and set(found[0].strip()) == {opened[0]}:
            opened = None
    return opened
