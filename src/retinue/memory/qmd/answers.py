"""What the program answers, checked before anything is made of it."""

from __future__ import annotations

import re

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from retinue.memory.errors import QmdFailed

_SCHEME = "qmd://"
_FIRST_LINE = re.compile(r"@@ -(\d{1,9}),\d{1,9} @@")
_COUNTS = re.compile(r"Indexed: (\d+) new, (\d+) updated, (\d+) unchanged, (\d+) removed")


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    file: str = Field(max_length=4_096)
    score: float = Field(ge=0, allow_inf_nan=False)
    line: int | None = Field(None, ge=1)
    snippet: str = ""


_ROWS = TypeAdapter(list[_Row])


class Lead(Struct, frozen=True):
    """A file that the program names, the line that it would show, and how well it fits, from 0 to 1."""

    collection: str
    relative: str
    line: int
    score: float


class UpdateCounts(Struct, frozen=True):
    """What an update came to."""

    files: int
    changed: int
    removed: int


def parse_leads(text: str) -> tuple[Lead, ...]:
    """Read the answer to a search, best first; raises `QmdFailed` for anything that is not one."""
    try:
        rows = _ROWS.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise QmdFailed(
            f"The program's answer is not what a search gives ({where + ': ' if where else ''}{first['msg']})."
        ) from error
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
