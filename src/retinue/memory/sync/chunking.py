"""Chunking: a note is split into overlapping windows of whole lines.

A token is estimated as four characters; a character of a script without spaces counts as three quarters of a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from retinue.core.markdown import fence_after, read_heading
from retinue.memory.search.words import count_spaceless

CHARS_PER_TOKEN = 4
_SPACELESS_EXTRA = 2
_MIN_WINDOW = 32


class Chunk(Struct, frozen=True):
    """A part of a note: its exact lines, counted from 1, and the headings above its first line."""

    text: str
    start_line: int
    end_line: int
    headings: tuple[str, ...] = ()


class _Piece(Struct, frozen=True):
    """A line, or a part of one that is too long for a window."""

    line: int
    text: str
    weight: int


def text_weight(text: str) -> int:
    """Return the size of a text in quarters of a token."""
    return len(text) + _SPACELESS_EXTRA * count_spaceless(text)


def chunk_text(text: str, *, tokens: int, overlap: int) -> tuple[Chunk, ...]:
    """Split a text into windows of about `tokens` tokens that share about `overlap` tokens with the previous one.

    Every line that is not blank is in at least one chunk. Chunks consist of whole lines; only a line longer than a
    window is split.
    """
    window = max(_MIN_WINDOW, tokens * CHARS_PER_TOKEN)
    shared = min(overlap, tokens - 1) * CHARS_PER_TOKEN
    lines = text.replace("\r\n", "\n").split("\n")
    headings = _headings_above(lines)
    return tuple(
        Chunk("\n".join(_joined(run)), run[0].line, run[-1].line, headings[run[0].line - 1])
        for run in _windows(_pieces(lines, window), window, shared)
        if any(not piece.text.isspace() and piece.text for piece in run)
    )


def _windows(pieces: Iterator[_Piece], window: int, shared: int) -> Iterator[list[_Piece]]:
    run: list[_Piece] = []
    weight = fresh = 0
    for piece in pieces:
        if run and weight + piece.weight > window:
            if fresh:
                yield run
            run = _carried(run, min(shared, window - piece.weight))
            weight = sum(kept.weight for kept in run)
            fresh = 0
        run.append(piece)
        weight += piece.weight
        fresh += 1
    if fresh:
        yield run


def _carried(run: Sequence[_Piece], room: int) -> list[_Piece]:
    """Return the last lines of a window, with which the next one starts."""
    kept: list[_Piece] = []
    for piece in reversed(run):
        room -= piece.weight
        if room < 0:
            break
        kept.append(piece)
    return kept[::-1]


def _pieces(lines: Sequence[str], window: int) -> Iterator[_Piece]:
    for number, line in enumerate(lines, start=1):
        weight = text_weight(line) + 1
        if weight <= window:
            yield _Piece(number, line, weight)
        else:
            yield from (_Piece(number, part, text_weight(part) + 1) for part in _split_line(line, window - 1))


def _split_line(line: str, room: int) -> Iterator[str]:
    """Yield parts of a long line, split at a space if one is near."""
    start = 0
    while start < len(line):
        end = start + room
        part = line[start:end]
        if (weight := text_weight(part)) > room:
            end = start + max(1, room * len(part) // weight)
        if end < len(line):
            space = line.rfind(" ", start + (end - start) // 2, end)
            end = space + 1 if space > 0 else end
        yield line[start:end]
        start = end


def _joined(run: Sequence[_Piece]) -> Iterator[str]:
    """Yield the lines of a window; parts of the same line are joined."""
    text, line = "", 0
    for piece in run:
        if piece.line == line:
            text += piece.text
            continue
        if line:
            yield text
        text, line = piece.text, piece.line
    yield text


def _headings_above(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for every line the headings above it, outermost first; for a heading those of its parents."""
    above: list[tuple[str, ...]] = []
    open_headings: list[tuple[int, str]] = []
    fence = ""
    for line in lines:
        above.append(tuple(title for _, title in open_headings))
        fence = fence_after(line, fence)
        found = None if fence else read_heading(line)
        if found:
            level, words = found
            open_headings = [(depth, title) for depth, title in open_headings if depth < level]
            above[-1] = tuple(title for _, title in open_headings)
            open_headings.append((level, words[:200]))
    return above
