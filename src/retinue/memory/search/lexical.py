"""Text scores: how well the words of a chunk and of its lines match a query."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from retinue.memory.search.query import MemoryQuery
from retinue.memory.search.words import Stemmer, character_pairs
from retinue.memory.store.protocol import IndexTotals, StoredChunk

_K1 = 1.2
_B = 0.75
_WORD = re.compile(r"[^\W_]+")
_HIRAGANA = re.compile(r"[\u3040-\u309f]")
_PAIR_WEIGHT, _PARTICLE_WEIGHT = 3.0, 0.5
_EXACT_LINE = 20.0
_MAX_PREFIX = 5
_ASKING_WEIGHT = 0.2
"""The part of its weight that a word keeps if it describes the request and not its subject."""


class QueryTerms(Struct, frozen=True):
    """The weighted terms of a query: stems, character pairs, and phrases that must match exactly.

    `beginnings` are the prefixes of every word that can have one of the stems.
    """

    weights: Mapping[str, float]
    pairs: Mapping[str, float]
    exact: tuple[re.Pattern[str], ...]
    average_words: float
    total: float
    """The total weight of the query, including words that occur nowhere."""
    heaviest: float
    """The weight of the most specific term."""
    beginnings: frozenset[str]


class TermMatch(Struct, frozen=True):
    """How a chunk matches a query: the stems and pairs found, their share of the query's weight, and the number of
    exact phrases found. `lines` are the weights of its lines."""

    bm25: float
    share: float
    found: frozenset[str]
    exact: int
    lines: tuple[float, ...] = ()


def weigh_terms(
    query: MemoryQuery, stems: Mapping[str, str], frequencies: Mapping[str, int], totals: IndexTotals
) -> QueryTerms:
    """Weigh terms by inverse document frequency; a word that is in most chunks still has a small weight."""
    count = max(1, totals.chunks)
    asking = {stems[word] for word in query.asking}
    worth = {
        stem: math.log(1 + (count - seen + 0.5) / (seen + 0.5)) * (_ASKING_WEIGHT if stem in asking else 1.0)
        for stem in dict.fromkeys(stems[word] for word in query.words)
        for seen in (min(count, frequencies.get(stem, 0)),)
    }
    weights = {stem: weight for stem, weight in worth.items() if frequencies.get(stem)}
    pairs = {pair: _PARTICLE_WEIGHT if _HIRAGANA.search(pair) else _PAIR_WEIGHT for pair in query.pairs}
    exact = tuple(map(exact_pattern, query.exact))
    total = sum(worth.values()) + sum(pairs.values())
    heaviest = max((*worth.values(), *pairs.values()), default=1.0)
    return QueryTerms(
        weights, pairs, exact, totals.words / count or 1.0, total, heaviest, frozenset(map(_beginning, weights))
    )


def _beginning(stem: str) -> str:
    # A stem is a prefix of its words, apart from a last letter that stemming adds: hoping is hope, skies are ski.
    return (stem[:-1] if stem[-1] in "ei" and len(stem) > 2 else stem)[:_MAX_PREFIX]


def _likely_words(text: str, beginnings: Iterable[str]) -> list[tuple[int, str]]:
    """Return the words of a text that start like one of the stems, with their offsets.

    Searching for a few prefixes is faster than tokenizing the whole text.
    """
    found = []
    for beginning in beginnings:
        at = text.find(beginning)
        while at >= 0:
            if not at or not text[at - 1].isalnum():
                word = _WORD.match(text, at)
                if word:
                    found.append((at, word[0]))
            at = text.find(beginning, at + 1)
    return found


def exact_pattern(phrase: str) -> re.Pattern[str]:
    """Return a pattern for a phrase, ignoring case and the amount of white space, but not inside a longer word."""
    body = r"\s+".join(re.escape(part) for part in phrase.split())
    return re.compile(rf"(?<!\w){body}(?!\w)", re.IGNORECASE)


def match_chunk(chunk: StoredChunk, terms: QueryTerms, stemmer: Stemmer) -> TermMatch:
    """Match the terms of a query against a chunk and its context."""
    folded = fold_text(f"{chunk.text}\n{chunk.context}")
    words = _likely_words(folded, terms.beginnings)
    known = stemmer.learn([word for _, word in words])
    counts: dict[str, int] = {}
    matched: list[tuple[int, str]] = []
    for at, word in words:
        stem = known[word]
        if stem in terms.weights:
            counts[stem] = counts.get(stem, 0) + 1
            matched.append((at, stem))
    for pair in character_pairs(chunk.text) if terms.pairs else ():
        if pair in terms.pairs:
            counts[pair] = counts.get(pair, 0) + 1
    hits = sum(1 for pattern in terms.exact if pattern.search(chunk.text))
    held = sum(terms.weights.get(item) or terms.pairs[item] for item in counts)
    return TermMatch(
        _bm25(counts, chunk.words, terms),
        held / terms.total if terms.total else 0.0,
        frozenset(counts),
        hits,
        tuple(_weigh(chunk.text.split("\n"), folded, matched, terms)),
    )


def weigh_lines(lines: Sequence[str], terms: QueryTerms, stemmer: Stemmer) -> list[float]:
    """Return the weight of each line: the sum of the weights of the distinct terms on it."""
    # Folding keeps line feeds, so all lines are searched at once.
    folded = fold_text("\n".join(lines))
    words = _likely_words(folded, terms.beginnings)
    known = stemmer.learn([word for _, word in words])
    return _weigh(lines, folded, [(at, known[word]) for at, word in words], terms)


def _weigh(lines: Sequence[str], folded: str, matched: Iterable[tuple[int, str]], terms: QueryTerms) -> list[float]:
    """Return the weights of the first lines of a folded text, given the positions of stems in it."""
    # Most lines contain nothing of the query, so only the others are looked at.
    stems: dict[int, set[str]] = {}
    for at, stem in matched:
        stems.setdefault(folded.count("\n", 0, at), set()).add(stem)
    weights = [0.0] * len(lines)
    for line, found in stems.items():
        if line < len(lines):
            weights[line] = sum(terms.weights.get(stem, 0.0) for stem in found)
    if terms.pairs or terms.exact:
        for line, text in enumerate(lines):
            weights[line] += sum(terms.pairs.get(pair, 0.0) for pair in set(character_pairs(text)))
            weights[line] += _EXACT_LINE * sum(1 for pattern in terms.exact if pattern.search(text))
    return weights


def fold_text(text: str) -> str:
    """Return the text in lower case and without diacritics, as in the full-text index."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in plain if not unicodedata.combining(char))


def _bm25(counts: Mapping[str, int], words: int, terms: QueryTerms) -> float:
    length = _K1 * (1 - _B + _B * words / terms.average_words)
    return sum(
        (terms.weights.get(item) or terms.pairs[item]) * seen * (_K1 + 1) / (seen + length)
        for item, seen in counts.items()
    )


def count_words(text: str) -> int:
    """Return the length of a text for scoring: its words and character pairs."""
    return len(_WORD.findall(text)) + len(character_pairs(text))


def choose_lookup_words(
    words: Sequence[str], stems: Mapping[str, str], frequencies: Mapping[str, int], *, most_rows: int
) -> list[str]:
    """Return the words for the index lookup: the rarest ones that together occur in at most `most_rows` chunks.

    A common word would match half of the index; it still counts when the candidates are scored. The rarest word is
    always included.
    """
    there = [word for word in words if frequencies.get(stems[word], 0)]
    chosen: list[str] = []
    rows = 0
    for word in sorted(there, key=lambda word: (frequencies[stems[word]], word)):
        rows += frequencies[stems[word]]
        if chosen and rows > most_rows:
            break
        chosen.append(word)
    return chosen
