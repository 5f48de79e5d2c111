"""Cutting a note into the pieces that are found: a window that slides over whole lines.

Sizes are estimated as four characters a token; a character of a script without spaces counts as three quarters of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from retinue.core.markdown import fence_after, read_heading
from retinue.memory.scripts import count_spaceless

CHARS_PER_TOKEN = 4
_SPACELESS_EXTRA = 2
_SMALLEST_WINDOW = 32


class Chunk(Struct, frozen=True):
    """A piece of a note: its exact lines, counted from 1, and the headings above its first line."""

    text: str
    start_line: int
    end_line: int
    headings: tuple[str, ...] = ()


class _Piece(Struct, frozen=True):
    """A line, or a part of one that is too long for a window."""

    line: int
    text: str
    weight: int


def weigh(text: str) -> int:
    """The size of a text in quarters of a token."""
    return len(text) + _SPACELESS_EXTRA * count_spaceless(text)


def chunk_text(text: str, *, tokens: int, overlap: int) -> tuple[Chunk, ...]:
    """Cut a text into windows of about `tokens` that share about `overlap` with the one before.

    Every line is in at least one chunk unless it is blank, and chunks hold whole lines; only a line longer than a
    window is cut itself.
    """
    window = max(_SMALLEST_WINDOW, tokens * CHARS_PER_TOKEN)
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
    """The last lines of a window that the next one starts with."""
    kept: list[_Piece] = []
    for piece in reversed(run):
        room -= piece.weight
        if room < 0:
            break
        kept.append(piece)
    return kept[::-1]


def _pieces(lines: Sequence[str], window: int) -> Iterator[_Piece]:
    for number, line in enumerate(lines, start=1):
        weight = weigh(line) + 1
        if weight <= window:
            yield _Piece(number, line, weight)
        else:
            yield from (_Piece(number, part, weigh(part) + 1) for part in _split_line(line, window - 1))


def _split_line(line: str, room: int) -> Iterator[str]:
    """Parts of a long line, cut at a space where one is near."""
    start = 0
    while start < len(line):
        end = start + room
        part = line[start:end]
        if (weight := weigh(part)) > room:
            end = start + max(1, room * len(part) // weight)
        if end < len(line):
            space = line.rfind(" ", start + (end - start) // 2, end)
            end = space + 1 if space > 0 else end
        yield line[start:end]
        start = end


def _joined(run: Sequence[_Piece]) -> Iterator[str]:
    """The lines of a window; parts of one line are put together again."""
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
    """For every line the headings that it stands under, outermost first; a heading stands under its own parents."""
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
