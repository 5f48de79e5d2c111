"""The part of a chunk that is shown: whole lines around the ones that match, within a number of characters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

_SEGMENT = 160


class Line(Struct, frozen=True):
    """A line, or a stretch of a long one, and how much it says about the question."""

    number: int
    text: str
    weight: float
    continues: bool = False


class Snippet(Struct, frozen=True):
    """A text and the exact lines it stands on."""

    text: str
    start_line: int
    end_line: int


def cut_line(text: str) -> list[str]:
    """A long line as stretches of it, cut at spaces."""
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


def cut_snippet(lines: Sequence[Line], room: int) -> Snippet:
    """The stretch of at most `room` characters that weighs most, filled up with the lines around it."""
    first, last = _heaviest(lines, room)
    left = room - _length(lines[first : last + 1])
    # What surrounds the match explains it; the lines after it more often than those before.
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


def _heaviest(lines: Sequence[Line], room: int) -> tuple[int, int]:
    """The first and last line of the heaviest stretch that fits, without light lines at its ends."""
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


def _trimmed(lines: Sequence[Line], first: int, last: int) -> tuple[int, int]:
    while first < last and not lines[first].text.strip():
        first += 1
    while last > first and not lines[last].text.strip():
        last -= 1
    return first, last


def _length(lines: Sequence[Line]) -> int:
    return sum(map(_cost, lines))


def _cost(line: Line) -> int:
    return len(line.text) + (0 if line.continues else 1)
