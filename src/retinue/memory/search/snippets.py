"""Snippets and excerpts: the lines of a note that are shown, within a number of characters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.core.trust import Trust
from retinue.memory.notes import Provenance

_SEGMENT = 160


class ScoredLine(Struct, frozen=True):
    """A line, or a part of a long one, with its weight for the query."""

    number: int
    text: str
    weight: float
    continues: bool = False


class Snippet(Struct, frozen=True):
    """A text and its exact lines."""

    text: str
    start_line: int
    end_line: int


def split_long_line(text: str) -> list[str]:
    """Split a long line at spaces."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + _SEGMENT
        if end < len(text):
            space = text.rfind(" ", start + _SEGMENT // 2, end)
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
    return Snippet(text[:room], lines[first].number, lines[last].number)


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


DEFAULT_LINES = 120
MAX_CHARS = 12_000


class ReadLimits(Struct, frozen=True):
    """The default number of lines and the maximum number of characters of one excerpt."""

    lines: int = DEFAULT_LINES
    chars: int = MAX_CHARS


USUAL_LIMITS = ReadLimits()


class Excerpt(Struct, frozen=True):
    """Lines of a note; `next_line` is the line after them, None at the end of the file."""

    path: str
    text: str
    start_line: int
    lines: int
    origin: Trust
    next_line: int | None = None


def cut_excerpt(
    path: str, text: str, start: int, lines: int | None, provenance: Provenance, max_chars: int = MAX_CHARS
) -> Excerpt:
    """Return at most `lines` lines and `max_chars` characters from line `start` on; a longer line is cut."""
    every = text.replace("\r\n", "\n").split("\n")
    if every and not every[-1]:
        every.pop()
    first = max(1, start)
    taken: list[str] = []
    room = max_chars
    for line in every[first - 1 : first - 1 + max(1, lines or DEFAULT_LINES)]:
        if taken and len(line) + 1 > room:
            break
        taken.append(line[:room])
        room -= len(line) + 1
    after = first + len(taken)
    return Excerpt(
        path,
        "\n".join(taken),
        first,
        len(taken),
        provenance(path, every[first - 1 : after - 1]),
        after if taken and after <= len(every) else None,
    )
