"""Queries to the QMD program, and converting its output to hits.

The text of a hit is read from the notes, never taken from the program: so it is the current text with its exact lines
and origin, and a file that is not part of memory is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from retinue.core.errors import StorageError
from retinue.memory.notes import WORKSPACE_FILES, WORKSPACE_FOLDER, Library, NoteDocument, Provenance, chunk_context
from retinue.memory.qmd.collections import Collection
from retinue.memory.qmd.program import QmdFailed
from retinue.memory.search.lexical import QueryTerms, TermMatch, fold_text, match_chunk, weigh_lines, weigh_terms
from retinue.memory.search.query import MemoryQuery
from retinue.memory.search.ranking import LineRating, MemoryHit, ScoredChunk, ScoreParts, build_hits
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import IndexTotals, StoredChunk

LINES_BEFORE = 30
LINES_AFTER = 60
_FEW_WORDS = 100


def make_hits(
    matches: Sequence[QmdMatch],
    query: MemoryQuery,
    rules: SearchRules,
    collections: Mapping[str, Collection],
    library: Library,
    *,
    provenance: Provenance,
    stemmer: Stemmer,
    by_words: bool,
) -> tuple[MemoryHit, ...]:
    """Return the hits for matches, in their order and under the same rules as those of the built-in index."""
    terms = _terms(query, len(matches), stemmer)
    candidates: dict[str, ScoredChunk] = {}
    for found, score in zip(matches, _scores(matches, by_words=by_words), strict=True):
        collection = collections.get(found.collection)
        path = collection.note(found.relative) if collection else ""
        if not path or path in candidates:
            continue
        try:
            document = library.read(path)
        except StorageError:
            # Deleted since, or not a note: a link, another kind of file, a path outside of memory.
            continue
        chunk = _around(document, found.line, len(candidates), provenance)
        match = match_chunk(chunk, terms, stemmer)
        if by_words and not _holds_any(document, match, query):
            # The program also matches the names of collections, which are irrelevant.
            continue
        if rules.admits(chunk.origin, chunk.source):
            near = tuple(float(number == found.line) for number in range(chunk.start_line, chunk.end_line + 1))
            parts = _parts(match, terms, score, by_words=by_words)
            candidates[path] = ScoredChunk(chunk, match, parts, near)
    return build_hits(
        list(candidates.values()),
        rules.limits,
        LineRating(lambda lines: weigh_lines(lines, terms, stemmer), terms.total),
        # Here a chunk is a whole file, so several snippets of it could grow into one long hit.
        most_snippets=1,
    )


def merge_matches(first: Sequence[QmdMatch], more: Iterable[QmdMatch]) -> tuple[QmdMatch, ...]:
    """Return the first matches, then those of other files; scores never increase."""
    merged = {(found.collection, found.relative): found for found in first}
    lowest = first[-1].score if first else 1.0
    for found in more:
        lowest = min(lowest, found.score)
        merged.setdefault(
            (found.collection, found.relative),
            QmdMatch(found.collection, found.relative, found.line, min(lowest, found.score)),
        )
    return tuple(merged.values())


def _scores(matches: Sequence[QmdMatch], *, by_words: bool) -> list[float]:
    """Return text scores relative to the best, as the built-in index does; if all are 0, by rank."""
    best = max((found.score for found in matches), default=0.0)
    if not by_words:
        return [found.score for found in matches]
    if best <= 0:
        return [1 / place for place in range(1, len(matches) + 1)]
    return [found.score / best for found in matches]


def _terms(query: MemoryQuery, files: int, stemmer: Stemmer) -> QueryTerms:
    """Return the terms of the query with equal weights, because the program reports no word frequencies."""
    stems = stemmer.learn(query.words)
    count = max(1, files)
    return weigh_terms(
        query,
        stems,
        dict.fromkeys((stems[word] for word in query.words), 1),
        IndexTotals(count, count, count * _FEW_WORDS, 0),
    )


def _around(document: NoteDocument, line: int, number: int, provenance: Provenance) -> StoredChunk:
    """Return the lines around the one that the program would show, as a chunk."""
    record = document.record
    every = document.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    line = min(line, len(every))
    first = max(0, line - 1 - LINES_BEFORE)
    lines = every[first : line + LINES_AFTER]
    return StoredChunk(
        number,
        record.path,
        record.source,
        0,
        first + 1,
        first + len(lines),
        "\n".join(lines),
        chunk_context(record.path, (), record.day),
        _FEW_WORDS,
        provenance(record.path, lines),
        record.day,
    )


def _holds_any(document: NoteDocument, match: TermMatch, query: MemoryQuery) -> bool:
    if match.found or match.exact:
        return True
    # The program also matches prefixes of words and file names.
    path = document.record.path
    name = "" if path in WORKSPACE_FILES else path.removeprefix(f"{WORKSPACE_FOLDER}/")
    text = fold_text(f"{name}\n{document.text}")
    return any(fold_text(term) in text for term in (*query.words, *query.exact, *query.pairs))


def _parts(match: TermMatch, terms: QueryTerms, score: float, *, by_words: bool) -> ScoreParts:
    exact = match.exact / len(terms.exact) if terms.exact else 0.0
    return ScoreParts(0.0 if by_words else score, score if by_words else 0.0, exact, 1.0, score)


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
