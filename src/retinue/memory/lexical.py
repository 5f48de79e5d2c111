"""How well a chunk's words fit a question, and on which lines they stand."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from retinue.memory.query import Query
from retinue.memory.scripts import pair_up
from retinue.memory.stems import Stemmer
from retinue.memory.store import StoredChunk, Totals

_K1 = 1.2
_B = 0.75
_WORD = re.compile(r"[^\W_]+")
_HIRAGANA = re.compile(r"[\u3040-\u309f]")
_PAIR_WEIGHT, _PARTICLE_WEIGHT = 3.0, 0.5
_EXACT_LINE = 20.0
_LONGEST_BEGINNING = 5


class Terms(Struct, frozen=True):
    """What to look for: how much each stem and pair is worth, and what must stand exactly.

    `beginnings` are those of every word that could have one of the stems.
    """

    weights: Mapping[str, float]
    pairs: Mapping[str, float]
    exact: tuple[re.Pattern[str], ...]
    average_words: float
    total: float
    """What all of the question is worth, with the words that stand nowhere."""
    heaviest: float
    """What the word that tells most is worth."""
    beginnings: frozenset[str]


class Match(Struct, frozen=True):
    """What a chunk holds of a question: its stems and pairs, the share of the question they make up, and how many
    of the exact phrases stand there."""

    bm25: float
    share: float
    found: frozenset[str]
    exact: int


def weigh_terms(query: Query, stems: Mapping[str, str], frequencies: Mapping[str, int], totals: Totals) -> Terms:
    """Rare words are worth more; one that is in most chunks still is worth a little."""
    count = max(1, totals.chunks)
    worth = {
        stem: math.log(1 + (count - seen + 0.5) / (seen + 0.5))
        for stem in dict.fromkeys(stems[word] for word in query.words)
        for seen in (min(count, frequencies.get(stem, 0)),)
    }
    weights = {stem: weight for stem, weight in worth.items() if frequencies.get(stem)}
    pairs = {pair: _PARTICLE_WEIGHT if _HIRAGANA.search(pair) else _PAIR_WEIGHT for pair in query.pairs}
    exact = tuple(map(exact_pattern, query.exact))
    total = sum(worth.values()) + sum(pairs.values())
    heaviest = max((*worth.values(), *pairs.values()), default=1.0)
    return Terms(
        weights, pairs, exact, totals.words / count or 1.0, total, heaviest, frozenset(map(_beginning, weights))
    )


def _beginning(stem: str) -> str:
    # A stem is how its words begin, but for a last letter that stemming put there: hoping is hope, skies are ski.
    return (stem[:-1] if stem[-1] in "ei" and len(stem) > 2 else stem)[:_LONGEST_BEGINNING]


def _likely_words(text: str, beginnings: Iterable[str]) -> list[tuple[int, str]]:
    """The words of a text that start like one of the stems, and where they stand.

    Looking for a few beginnings is faster than reading everything.
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
    """Finds a phrase whatever its case and however its spaces are set, but not inside a longer word."""
    body = r"\s+".join(re.escape(part) for part in phrase.split())
    return re.compile(rf"(?<!\w){body}(?!\w)", re.IGNORECASE)


def match_chunk(chunk: StoredChunk, terms: Terms, stemmer: Stemmer) -> Match:
    """Look for the terms in a chunk and in what is known about it."""
    words = [word for _, word in _likely_words(fold(f"{chunk.text}\n{chunk.context}"), terms.beginnings)]
    known = stemmer.learn(words)
    counts: dict[str, int] = {}
    for word in words:
        stem = known[word]
        if stem in terms.weights:
            counts[stem] = counts.get(stem, 0) + 1
    for pair in pair_up(chunk.text) if terms.pairs else ():
        if pair in terms.pairs:
            counts[pair] = counts.get(pair, 0) + 1
    hits = sum(1 for pattern in terms.exact if pattern.search(chunk.text))
    held = sum(terms.weights.get(item) or terms.pairs[item] for item in counts)
    return Match(_bm25(counts, chunk.words, terms), held / terms.total if terms.total else 0.0, frozenset(counts), hits)


def weigh_lines(lines: Sequence[str], terms: Terms, stemmer: Stemmer) -> list[float]:
    """How much each line says about the question: what the different terms on it are worth."""
    stems: list[set[str]] = [set() for _ in lines]
    # Line feeds stay where they are when a text is folded, so all lines are looked through at once.
    folded = fold("\n".join(lines))
    words = _likely_words(folded, terms.beginnings)
    known = stemmer.learn([word for _, word in words])
    ends = list(accumulate(len(line) + 1 for line in folded.split("\n")))
    for at, word in words:
        stems[bisect_right(ends, at)].add(known[word])
    weights = []
    for line, found in zip(lines, stems, strict=True):
        weight = sum(terms.weights.get(stem, 0.0) for stem in found)
        if terms.pairs:
            weight += sum(terms.pairs.get(pair, 0.0) for pair in set(pair_up(line)))
        if terms.exact:
            weight += _EXACT_LINE * sum(1 for pattern in terms.exact if pattern.search(line))
        weights.append(weight)
    return weights


def fold(text: str) -> str:
    """Lower case, and without the marks on letters that the index leaves out too."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in plain if not unicodedata.combining(char))


def _bm25(counts: Mapping[str, int], words: int, terms: Terms) -> float:
    length = _K1 * (1 - _B + _B * words / terms.average_words)
    return sum(
        (terms.weights.get(item) or terms.pairs[item]) * seen * (_K1 + 1) / (seen + length)
        for item, seen in counts.items()
    )


def count_words(text: str) -> int:
    """The length of a text for scoring: its words, and its pairs of characters."""
    return len(_WORD.findall(text)) + len(pair_up(text))


def choose_words(
    words: Sequence[str], stems: Mapping[str, str], frequencies: Mapping[str, int], *, most_rows: int
) -> list[str]:
    """The words to look chunks up by: the rarest, as long as together they occur in few enough chunks.

    A common word finds half the index and tells little; it still counts when the candidates are scored. The rarest
    word is always taken.
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
