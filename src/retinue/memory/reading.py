"""Reading a stretch of a note."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.trust import Trust
from retinue.memory.documents import Provenance

DEFAULT_LINES = 120
MAX_CHARS = 12_000


class ReadLimits(Struct, frozen=True):
    """How much one reading brings: lines where none are asked for, and characters at most."""

    lines: int = DEFAULT_LINES
    chars: int = MAX_CHARS


USUAL_LIMITS = ReadLimits()


class Excerpt(Struct, frozen=True):
    """Lines of a note; `next_line` is where to go on, None at the end of the file."""

    path: str
    text: str
    start_line: int
    lines: int
    origin: Trust
    next_line: int | None = None


def cut_excerpt(
    path: str, text: str, start: int, lines: int | None, provenance: Provenance, max_chars: int = MAX_CHARS
) -> Excerpt:
    """At most `lines` whole lines and `max_chars` characters from line `start` on; a longer line is cut."""
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
