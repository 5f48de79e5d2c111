"""What the program answers, checked before anything is made of it."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from retinue.memory.errors import QmdFailed
from retinue.memory.search.query import MemoryQuery

_SCHEME = "qmd://"
_FIRST_LINE = re.compile(r"@@ -(\d{1,9}),\d{1,9} @@")
_COUNTS = re.compile(r"Indexed: (\d+) new, (\d+) updated, (\d+) unchanged, (\d+) removed")


class _Row(msgspec.Struct, frozen=True):
    file: Annotated[str, Meta(max_length=4_096)]
    score: Annotated[float, Meta(ge=0)]
    line: Annotated[int, Meta(ge=1)] | None = None
    snippet: str = ""


class QmdMatch(Struct, frozen=True):
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


def parse_matches(text: str) -> tuple[QmdMatch, ...]:
    """Read the answer to a search, best first; raises `QmdFailed` for anything that is not one."""
    try:
        rows = msgspec.json.decode(text, type=list[_Row])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise QmdFailed(f"The program's answer is not the result of a search ({error}).") from error
    return tuple(lead for row in rows if (lead := _lead(row)))


def _lead(row: _Row) -> QmdMatch | None:
    if not row.file.startswith(_SCHEME):
        raise QmdFailed(f"The program's answer names a file that is in no collection ({row.file[:80]!r}).")
    collection, _, relative = row.file.removeprefix(_SCHEME).partition("/")
    header = _FIRST_LINE.match(row.snippet)
    line = row.line or (int(header[1]) if header else 1)
    return QmdMatch(collection, relative, line, min(1.0, row.score)) if relative else None


def parse_counts(text: str) -> UpdateCounts:
    """Read what an update printed; a version that prints something else counts nothing."""
    found = [tuple(map(int, row)) for row in _COUNTS.findall(text)]
    new, updated, unchanged, removed = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0, 0, 0)
    return UpdateCounts(new + updated + unchanged, new + updated, removed)


MAX_TERMS = 16
_TYPED = re.compile(r"^\s*(?:lex|vec|hyde|expand|intent):", re.IGNORECASE)
_NEGATION = re.compile(r"(^|\s)-+(?=[\w\"])")


def query_for_all(query: MemoryQuery) -> str:
    """Every word and phrase of the question, all of which must stand in a file."""
    asked = query.text.lower()
    # A day is also known by other spellings; nobody writes all of them in one note.
    words = (word for word in query.words if word in asked)
    return _plain(" ".join([*_phrases(query), *words, *query.pairs][:MAX_TERMS]))


def query_for_any(query: MemoryQuery) -> str:
    """The words and phrases one by one, so that files with some of them are found too, those with most first."""
    terms = [*_phrases(query), *query.words, *query.pairs][:MAX_TERMS]
    return "\n".join(f"lex: {_plain(term)}" for term in dict.fromkeys([query_for_all(query), *terms]))


def query_by_meaning(query: MemoryQuery) -> str:
    """The question as it is, without what the program would take for its own syntax."""
    return _NEGATION.sub(r"\1", _TYPED.sub("", _plain(query.text))).replace('"', " ").strip()


def _phrases(query: MemoryQuery) -> list[str]:
    return [f'"{" ".join(phrase.replace(chr(34), " ").split())}"' for phrase in query.exact]


def _plain(text: str) -> str:
    """Without halves of characters, which cannot be handed to a program."""
    return text.encode("utf-8", "replace").decode()
