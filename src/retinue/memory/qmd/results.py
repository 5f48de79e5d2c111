"""Converting matches of the QMD program to hits. The text is read from the notes, never taken from the program.

So a hit shows the current text with its exact lines and origin, and a file that is not part of memory is never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from retinue.core.errors import StorageError
from retinue.memory.notes import WORKSPACE_FILES, WORKSPACE_FOLDER, Library, NoteDocument, Provenance, chunk_context
from retinue.memory.qmd.collections import Collection
from retinue.memory.qmd.messages import QmdMatch
from retinue.memory.search.fusion import ScoreParts
from retinue.memory.search.lexical import QueryTerms, TermMatch, fold_text, match_chunk, weigh_lines, weigh_terms
from retinue.memory.search.query import MemoryQuery
from retinue.memory.search.ranking import MemoryHit, ScoredChunk, build_hits
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
        if chunk.origin in rules.origins and chunk.source in rules.sources:
            candidates[path] = ScoredChunk(
                chunk, match, _parts(match, terms, score, by_words=by_words), _near(chunk, found)
            )
    return build_hits(
        list(candidates.values()), rules.limits, lambda lines: weigh_lines(lines, terms, stemmer), terms.heaviest
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


def _near(chunk: StoredChunk, found: QmdMatch) -> tuple[float, ...]:
    numbers = range(chunk.start_line, chunk.end_line + 1)
    return tuple(1.0 if number == found.line else 0.0 for number in numbers)


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
