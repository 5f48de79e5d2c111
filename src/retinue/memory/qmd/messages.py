"""Queries to the QMD program and its output, which is validated before use."""

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
    """A file that the program found, the line it would show, and its score from 0 to 1."""

    collection: str
    relative: str
    line: int
    score: float


class UpdateCounts(Struct, frozen=True):
    """The file counts of an update."""

    files: int
    changed: int
    removed: int


def parse_matches(text: str) -> tuple[QmdMatch, ...]:
    """Parse the output of a search, best first; raise `QmdFailed` if it is invalid."""
    try:
        rows = msgspec.json.decode(text, type=list[_Row])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise QmdFailed(f"The output of the search is invalid ({error}).") from error
    return tuple(match for row in rows if (match := _match(row)))


def _match(row: _Row) -> QmdMatch | None:
    if not row.file.startswith(_SCHEME):
        raise QmdFailed(f"The output of the search names a file that is in no collection ({row.file[:80]!r}).")
    collection, _, relative = row.file.removeprefix(_SCHEME).partition("/")
    header = _FIRST_LINE.match(row.snippet)
    line = row.line or (int(header[1]) if header else 1)
    return QmdMatch(collection, relative, line, min(1.0, row.score)) if relative else None


def parse_counts(text: str) -> UpdateCounts:
    """Parse the output of an update; the counts are zero if a version of QMD prints something else."""
    found = [tuple(map(int, row)) for row in _COUNTS.findall(text)]
    new, updated, unchanged, removed = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0, 0, 0)
    return UpdateCounts(new + updated + unchanged, new + updated, removed)


MAX_TERMS = 16
_TYPED = re.compile(r"^\s*(?:lex|vec|hyde|expand|intent):", re.IGNORECASE)
_NEGATION = re.compile(r"(^|\s)-+(?=[\w\"])")


def query_for_all(query: MemoryQuery) -> str:
    """Return a query for files that contain all words and phrases."""
    asked = query.text.lower()
    # The other formats of a date are left out: no note contains all of them.
    words = (word for word in query.words if word in asked)
    return _plain(" ".join([*_phrases(query), *words, *query.pairs][:MAX_TERMS]))


def query_for_any(query: MemoryQuery) -> str:
    """Return a query for files that contain any of the words and phrases, those with most of them first."""
    terms = [*_phrases(query), *query.words, *query.pairs][:MAX_TERMS]
    return "\n".join(f"lex: {_plain(term)}" for term in dict.fromkeys([query_for_all(query), *terms]))


def query_by_meaning(query: MemoryQuery) -> str:
    """Return the text of the query without the syntax of the program."""
    return _NEGATION.sub(r"\1", _TYPED.sub("", _plain(query.text))).replace('"', " ").strip()


def _phrases(query: MemoryQuery) -> list[str]:
    return [f'"{" ".join(phrase.replace(chr(34), " ").split())}"' for phrase in query.exact]


def _plain(text: str) -> str:
    """Return the text without lone surrogates, which cannot be passed to a program."""
    return text.encode("utf-8", "replace").decode()
