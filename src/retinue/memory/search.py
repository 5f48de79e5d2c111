"""Searching: candidates by words and by meaning, one score for each, the best of them with what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal

from msgspec import Struct, field

from retinue.core.trust import Trust
from retinue.memory.fusion import (
    Parts,
    Weights,
    decay,
    diversify,
    reciprocal_ranks,
    share_of_best,
    spread_cosine,
    trust_in_words,
)
from retinue.memory.lexical import Match, choose_words, match_chunk, weigh_lines, weigh_terms
from retinue.memory.query import Query
from retinue.memory.ranking import Candidate, Hit, Limits, rank, show
from retinue.memory.stems import Stemmer
from retinue.memory.store import Similarity, Source, StoreView, Vector

MOST_ROWS = 1_000
MOST_CANDIDATES = 200
EXACT_BONUS = 0.25
EVERY_ORIGIN = frozenset(Trust)
EVERY_SOURCE: frozenset[Source] = frozenset({"memory", "sessions"})


class Rules(Struct, frozen=True):
    """How candidates are found and scored."""

    limits: Limits = field(default_factory=Limits)
    weights: Weights = field(default_factory=lambda: Weights.of(0.7, 0.3))
    fusion: Literal["weighted", "rrf"] = "weighted"
    candidate_multiplier: int = 4
    diversity: float | None = None
    half_life_days: float | None = None
    origins: frozenset[Trust] = EVERY_ORIGIN
    sources: frozenset[Source] = EVERY_SOURCE


class Found(Struct, frozen=True):
    """Hits, best first, and why there may be fewer than there could be."""

    hits: tuple[Hit, ...]
    problem: str | None = None


def search_view(
    view: StoreView, query: Query, vector: Vector | None, rules: Rules, stemmer: Stemmer, today: date
) -> Found:
    """Search one state of an index. Without a vector, or where no chunk has one, words alone decide."""
    totals = view.totals()
    if (query.is_empty and vector is None) or not totals.chunks:
        return Found(())
    stems = stemmer.learn(query.words)
    frequencies = view.frequencies(list(dict.fromkeys(stems[word] for word in query.words)))
    terms = weigh_terms(query, stems, frequencies, totals)
    problem = None
    try:
        by_words = _look_up(view, query, choose_words(query.words, stems, frequencies, most_rows=MOST_ROWS), rules)
    except TimeoutError:
        by_words, problem = [], "searching by words took too long"
    by_meaning = view.find_nearest(vector, _most(rules)) if vector is not None else []
    ids = list(dict.fromkeys((*by_words, *by_meaning)))
    similar = view.similarities(vector, ids) if vector is not None and ids else {}
    chunks = {chunk.id: chunk for chunk in view.chunks(ids)} if ids else {}
    matches = {
        key: match_chunk(chunk, terms, stemmer)
        for key in ids
        if (chunk := chunks.get(key)) and chunk.origin in rules.origins and chunk.source in rules.sources
    }
    parts = score(matches, similar, rules, {key: chunk.day for key, chunk in chunks.items()}, today)
    candidates = rank(
        Candidate(chunks[key], matches[key], parts[key], similar[key].lines if key in similar else ())
        for key in matches
    )
    if rules.diversity is not None:
        candidates = _diversified(candidates, rules.diversity)
    return Found(
        show(candidates, rules.limits, lambda lines: weigh_lines(lines, terms, stemmer), terms.heaviest), problem
    )


def score(
    matches: Mapping[int, Match],
    similar: Mapping[int, Similarity],
    rules: Rules,
    days: Mapping[int, date | None],
    today: date,
) -> dict[int, Parts]:
    """The parts of each candidate's score. Every candidate has both, whichever list it came from."""
    text = share_of_best({key: match.bm25 for key, match in matches.items()})
    if similar:
        sure = trust_in_words(max((match.share for match in matches.values()), default=0.0))
        text = {key: share * sure for key, share in text.items()}
    vector = {key: spread_cosine(similar[key].best) if key in similar else 0.0 for key in matches}
    most_exact = max((match.exact for match in matches.values()), default=0)
    weights = rules.weights if similar else Weights(0.0, 1.0)
    if rules.fusion == "rrf":
        lists = [_ordered(text), _ordered(vector)] if similar else [_ordered(text)]
        fused = reciprocal_ranks(*lists)
    else:
        fused = {key: weights.vector * vector[key] + weights.text * text[key] for key in matches}
    result = {}
    for key, match in matches.items():
        exact = match.exact / most_exact if most_exact else 0.0
        fade = decay(days.get(key), today, rules.half_life_days) if rules.half_life_days else 1.0
        # What stands there letter for letter does not grow old.
        final = fused[key] * (1.0 if exact else fade) * (1 - EXACT_BONUS) + EXACT_BONUS * exact
        final = final if most_exact else fused[key] * fade
        result[key] = Parts(vector[key], text[key], exact, fade, min(1.0, final))
    return result


def _look_up(view: StoreView, query: Query, words: Sequence[str], rules: Rules) -> list[int]:
    limit = _most(rules)
    exact = view.find_exact(query.exact, limit) if query.exact else []
    pairs = view.find_pairs(query.pairs, limit) if query.pairs else []
    by_words = view.find_words(words, limit) if rules.weights.text > 0 else []
    return [*exact, *by_words, *pairs]


def _most(rules: Rules) -> int:
    return min(MOST_CANDIDATES, max(1, rules.limits.max_results) * rules.candidate_multiplier)


def _ordered(scores: Mapping[int, float]) -> list[int]:
    return sorted((key for key in scores if scores[key] > 0), key=lambda key: (-scores[key], key))


def _diversified(candidates: Sequence[Candidate], weight: float) -> list[Candidate]:
    by_id = {item.chunk.id: item for item in candidates}
    words = {key: frozenset(item.chunk.text.lower().split()) for key, item in by_id.items()}

    def alike(one: int, other: int) -> float:
        either = len(words[one] | words[other])
        return len(words[one] & words[other]) / either if either else 1.0

    order = diversify(list(by_id), {key: item.parts.final for key, item in by_id.items()}, alike, weight)
    return [by_id[key] for key in order]
