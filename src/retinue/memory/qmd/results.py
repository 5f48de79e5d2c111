"""From what the program names to hits: the text is read from the notes themselves, never taken from the program.

So a hit shows what stands there now, on exactly its lines and with the origin of those lines, and a file that is not
part of memory is not shown, whatever the program says about it.
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
    leads: Sequence[QmdMatch],
    query: MemoryQuery,
    rules: SearchRules,
    collections: Mapping[str, Collection],
    library: Library,
    *,
    provenance: Provenance,
    stemmer: Stemmer,
    by_words: bool,
) -> tuple[MemoryHit, ...]:
    """The hits for leads, in their order and under the same rules as those of the built-in index."""
    terms = _terms(query, len(leads), stemmer)
    candidates: dict[str, ScoredChunk] = {}
    for lead, score in zip(leads, _scores(leads, by_words=by_words), strict=True):
        collection = collections.get(lead.collection)
        path = collection.note(lead.relative) if collection else ""
        if not path or path in candidates:
            continue
        try:
            document = library.read(path)
        except StorageError:
            # Gone since, or nothing that may be shown: a link, another kind of file, a path that leads out.
            continue
        chunk = _around(document, lead.line, len(candidates), provenance)
        match = match_chunk(chunk, terms, stemmer)
        if by_words and not _holds_any(document, match, query):
            # The program also looks at the names of collections, which say nothing about a note.
            continue
        if chunk.origin in rules.origins and chunk.source in rules.sources:
            candidates[path] = ScoredChunk(
                chunk, match, _parts(match, terms, score, by_words=by_words), _near(chunk, lead)
            )
    return build_hits(
        list(candidates.values()), rules.limits, lambda lines: weigh_lines(lines, terms, stemmer), terms.heaviest
    )


def merge_matches(first: Sequence[QmdMatch], more: Iterable[QmdMatch]) -> tuple[QmdMatch, ...]:
    """The first leads, then those of the others that name other files; no later one scores above an earlier one."""
    merged = {(lead.collection, lead.relative): lead for lead in first}
    lowest = first[-1].score if first else 1.0
    for lead in more:
        lowest = min(lowest, lead.score)
        merged.setdefault(
            (lead.collection, lead.relative),
            QmdMatch(lead.collection, lead.relative, lead.line, min(lowest, lead.score)),
        )
    return tuple(merged.values())


def _scores(leads: Sequence[QmdMatch], *, by_words: bool) -> list[float]:
    """Scores by words as shares of the best, as the built-in index gives them; where all are 0, by their place."""
    best = max((lead.score for lead in leads), default=0.0)
    if not by_words:
        return [lead.score for lead in leads]
    if best <= 0:
        return [1 / place for place in range(1, len(leads) + 1)]
    return [lead.score / best for lead in leads]


def _terms(query: MemoryQuery, files: int, stemmer: Stemmer) -> QueryTerms:
    """What to look for on the lines. How rare a word is the program does not tell, so all are worth the same."""
    stems = stemmer.learn(query.words)
    count = max(1, files)
    return weigh_terms(
        query,
        stems,
        dict.fromkeys((stems[word] for word in query.words), 1),
        IndexTotals(count, count, count * _FEW_WORDS, 0),
    )


def _around(document: NoteDocument, line: int, number: int, provenance: Provenance) -> StoredChunk:
    """The lines around the one that the program would show, as a chunk."""
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


def _near(chunk: StoredChunk, lead: QmdMatch) -> tuple[float, ...]:
    numbers = range(chunk.start_line, chunk.end_line + 1)
    return tuple(1.0 if number == lead.line else 0.0 for number in numbers)


def _holds_any(document: NoteDocument, match: TermMatch, query: MemoryQuery) -> bool:
    if match.found or match.exact:
        return True
    # The program matches beginnings of words as well, and what a file is called.
    path = document.record.path
    name = "" if path in WORKSPACE_FILES else path.removeprefix(f"{WORKSPACE_FOLDER}/")
    text = fold_text(f"{name}\n{document.text}")
    return any(fold_text(term) in text for term in (*query.words, *query.exact, *query.pairs))


def _parts(match: TermMatch, terms: QueryTerms, score: float, *, by_words: bool) -> ScoreParts:
    exact = match.exact / len(terms.exact) if terms.exact else 0.0
    return ScoreParts(0.0 if by_words else score, score if by_words else 0.0, exact, 1.0, score)
