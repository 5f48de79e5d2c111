"""Cutting snippets: the run of lines of a chunk that is worth most within some characters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

_SEGMENT = 160
MIN_PART_CHARS = _SEGMENT // 2
"""A long line is split at a space after at least so many characters."""


class ScoredLine(Struct, frozen=True):
    """A line, or a part of a long one, with its weight for the query."""

    number: int
    text: str
    weight: float
    continues: bool = False


class Snippet(Struct, frozen=True):
    """A text, its exact lines, and the sum of their values."""

    text: str
    start_line: int
    end_line: int
    value: float = 0.0


def split_long_line(text: str) -> list[str]:
    """Split a long line at spaces."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + _SEGMENT
        if end < len(text):
            space = text.rfind(" ", start + MIN_PART_CHARS, end)
            end = space + 1 if space > 0 else end
        parts.append(text[start:end])
        start = end
    return parts


def cut_snippet(lines: Sequence[ScoredLine], room: int) -> Snippet:
    """Return the heaviest run of lines within `room` characters, extended by the lines around it."""
    first, last = _heaviest(lines, room)
    left = room - sum(map(_cost, lines[first : last + 1]))
    # Context explains a match, the lines after it more often than those before.
    grew = True
    while grew:
        grew = False
        for step in (last + 1, first - 1):
            if 0 <= step < len(lines) and _cost(lines[step]) <= left:
                left -= _cost(lines[step])
                first, last = min(first, step), max(last, step)
                grew = True
    first, last = _trimmed(lines, first, last)
    text = "".join(
        line.text if at == 0 or line.continues else f"\n{line.text}" for at, line in enumerate(lines[first : last + 1])
    )
    value = sum(line.weight for line in lines[first : last + 1])
    return Snippet(text[:room], lines[first].number, lines[last].number, value)


def _heaviest(lines: Sequence[ScoredLine], room: int) -> tuple[int, int]:
    """Return the first and last line of the heaviest run that fits, without zero-weight lines at its ends."""
    best, chosen = -1.0, (0, 0)
    start = 0
    length, weight = 0, 0.0
    for end, line in enumerate(lines):
        length += _cost(line)
        weight += line.weight
        while length > room and start < end:
            length -= _cost(lines[start])
            weight -= lines[start].weight
            start += 1
        if weight > best + 1e-9:
            best, chosen = weight, (start, end)
    first, last = chosen
    while first < last and lines[first].weight <= 0:
        first += 1
    while last > first and lines[last].weight <= 0:
        last -= 1
    return first, last


def _trimmed(lines: Sequence[ScoredLine], first: int, last: int) -> tuple[int, int]:
    while first < last and not lines[first].text.strip():
        first += 1
    while last > first and not lines[last].text.strip():
        last -= 1
    return first, last


def _cost(line: ScoredLine) -> int:
    return len(line.text) + (0 if line.continues else 1)
