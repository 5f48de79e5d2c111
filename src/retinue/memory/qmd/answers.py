"""What the program answers, checked before anything is made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from retinue.memory.errors import QmdFailed

_SCHEME = "qmd://"
_FIRST_LINE = re.compile(r"@@ -(\d{1,9}),\d{1,9} @@")
_COUNTS = re.compile(r"Indexed: (\d+) new, (\d+) updated, (\d+) unchanged, (\d+) removed")


class _Row(msgspec.Struct, frozen=True):
    file: Annotated[str, Meta(max_length=4_096)]
    score: Annotated[float, Meta(ge=0)]
    line: Annotated[int, Meta(ge=1)] | None = None
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class Lead:
    """A file that the program names, the line that it would show, and how well it fits, from 0 to 1."""

    collection: str
    relative: str
    line: int
    score: float


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """What an update came to."""

    files: int
    changed: int
    removed: int


def parse_leads(text: str) -> tuple[Lead, ...]:
    """Read the answer to a search, best first; raises `QmdFailed` for anything that is not one."""
    try:
        rows = msgspec.json.decode(text, type=list[_Row])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise QmdFailed(f"The program's answer is not the result of a search ({error}).") from error
    return tuple(lead for row in rows if (lead := _lead(row)))


def _lead(row: _Row) -> Lead | None:
    if not row.file.startswith(_SCHEME):
        raise QmdFailed(f"The program's answer names a file that is in no collection ({row.file[:80]!r}).")
    collection, _, relative = row.file.removeprefix(_SCHEME).partition("/")
    header = _FIRST_LINE.match(row.snippet)
    line = row.line or (int(header[1]) if header else 1)
    return Lead(collection, relative, line, min(1.0, row.score)) if relative else None


def parse_counts(text: str) -> UpdateCounts:
    """Read what an update printed; a version that prints something else counts nothing."""
    found = [tuple(map(int, row)) for row in _COUNTS.findall(text)]
    new, updated, unchanged, removed = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0, 0, 0)
    return UpdateCounts(new + updated + unchanged, new + updated, removed)
