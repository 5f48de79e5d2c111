"""Hybrid search: finds candidates by words and by vectors, and combines both scores of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from msgspec import Struct

from retinue.memory.search.lexical import (
    QueryTerms,
    TermMatch,
    choose_lookup_words,
    match_chunk,
    weigh_lines,
    weigh_terms,
)
from retinue.memory.search.query import MemoryQuery
from retinue.memory.search.ranking import LineRating, MemoryHit, ScoredChunk, ScoreParts, build_hits, sort_by_score
from retinue.memory.search.rules import SearchRules, SearchWeights
from retinue.memory.search.signals import Signals, measure_signals
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import IndexView, Similarity, StoredChunk, Vector

MAX_ROWS = 1_000
MAX_CANDIDATES = 200
MAX_STANDING = 24
"""Instructions and preferences of the owner that are candidates of every search, whatever its words."""
EXACT_BONUS = 0.25


class FoundHits(Struct, frozen=True):
    """Hits, best first; `problem` says why some may be missing."""

    hits: tuple[MemoryHit, ...]
    problem: str | None = None


class Candidates(Struct, frozen=True):
    """What a search found, before it is ranked, by the id of the chunk."""

    terms: QueryTerms
    chunks: Mapping[int, StoredChunk]
    matches: Mapping[int, TermMatch]
    similar: Mapping[int, Similarity]
    signals: Mapping[int, Signals]
    problem: str | None = None


def search_view(
    view: IndexView, query: MemoryQuery, vector: Vector | None, rules: SearchRules, stemmer: Stemmer, today: date
) -> FoundHits:
    """Search one state of an index. Without a query vector, or if no chunk has a vector, only text is searched."""
    found = find_candidates(view, query, vector, rules, stemmer)
    return rank_candidates(found, rules, stemmer, today) if found is not None else FoundHits(())


def find_candidates(
    view: IndexView, query: MemoryQuery, vector: Vector | None, rules: SearchRules, stemmer: Stemmer
) -> Candidates | None:
    """Return what is near to the query in words or meaning; None if there is nothing to search or to search for."""
    totals = view.totals()
    if (query.is_empty and vector is None) or not totals.chunks:
        return None
    stems = stemmer.learn(query.words)
    frequencies = view.frequencies(list(dict.fromkeys(stems[word] for word in query.words)))
    terms = weigh_terms(query, stems, frequencies, totals)
    problem = None
    try:
        by_words = _look_up(
            view, query, choose_lookup_words(query.words, stems, frequencies, most_rows=MAX_ROWS), rules
        )
    except TimeoutError:
        by_words, problem = [], "searching by words took too long"
    by_meaning = view.find_nearest(vector, _most(rules)) if vector is not None else []
    ids = list(dict.fromkeys((*by_words, *by_meaning, *view.find_standing(MAX_STANDING))))
    similar = view.similarities(vector, ids) if vector is not None and ids else {}
    chunks = {chunk.id: chunk for chunk in view.chunks(ids)} if ids else {}
    matches = {
        key: match_chunk(chunk, terms, stemmer)
        for key in ids
        if (chunk := chunks.get(key)) and rules.admits(chunk.origin, chunk.source)
    }
    words = relative_words(matches, hybrid=bool(similar))
    signals = {key: measure_signals(chunks[key], words[key], similar.get(key)) for key in matches}
    return Candidates(terms, chunks, matches, similar, signals, problem)


def rank_candidates(found: Candidates, rules: SearchRules, stemmer: Stemmer, today: date) -> FoundHits:
    """Score what was found, and return the hits to show."""
    chunks, matches, similar, terms = found.chunks, found.matches, found.similar, found.terms
    days = {key: chunk.day for key, chunk in chunks.items()}
    parts = score_candidates(matches, found.signals, rules, days, today, hybrid=bool(similar))
    candidates = sort_by_score(
        ScoredChunk(chunks[key], matches[key], parts[key], similar[key].lines if key in similar else ())
        for key in matches
    )
    if rules.diversity is not None:
        candidates = _diversified(candidates, rules.diversity)
    rating = LineRating(lambda lines: weigh_lines(lines, terms, stemmer), terms.total, rules.lines)
    return FoundHits(build_hits(candidates, rules.limits, rating), found.problem)


def relative_words(matches: Mapping[int, TermMatch], *, hybrid: bool) -> dict[int, float]:
    """Return the BM25 scores relative to the best; in a hybrid search less if even the best match is bad."""
    words = relative_to_best({key: match.bm25 for key, match in matches.items()})
    if not hybrid:
        return words
    sure = word_confidence(max((match.share for match in matches.values()), default=0.0))
    return {key: share * sure for key, share in words.items()}


def score_candidates(
    matches: Mapping[int, TermMatch],
    signals: Mapping[int, Signals],
    rules: SearchRules,
    days: Mapping[int, date | None],
    today: date,
    *,
    hybrid: bool,
) -> dict[int, ScoreParts]:
    """Score candidates. Each gets a text and a vector score, whichever search found it."""
    weigh = rules.signals
    text = {key: found.words for key, found in signals.items()}
    vector = {key: scale_cosine(max(found.chunk, found.line)) if hybrid else 0.0 for key, found in signals.items()}
    most_exact = max((match.exact for match in matches.values()), default=0)
    weights = rules.weights if hybrid else SearchWeights(0.0, 1.0)
    if rules.fusion == "rrf":
        lists = [_ordered(text), _ordered(vector)] if hybrid else [_ordered(text)]
        fused = reciprocal_ranks(*lists)
    else:
        fused = {
            key: weights.vector * vector[key] + weights.text * text[key] + weigh.bonus(signals[key]) for key in matches
        }
    result = {}
    for key, match in matches.items():
        exact = match.exact / most_exact if most_exact else 0.0
        fade = age_decay(days.get(key), today, rules.half_life_days) if rules.half_life_days else 1.0
        # An exact match does not decay with age.
        final = fused.get(key, 0.0) * (1.0 if exact else fade) * (1 - EXACT_BONUS) + EXACT_BONUS * exact
        final = final if most_exact else fused.get(key, 0.0) * fade
        result[key] = ScoreParts(vector[key], text[key], exact, fade, min(1.0, final), signals[key])
    return result


def _look_up(view: IndexView, query: MemoryQuery, words: Sequence[str], rules: SearchRules) -> list[int]:
    limit = _most(rules)
    exact = view.find_exact(query.exact, limit) if query.exact else []
    pairs = view.find_pairs(query.pairs, limit) if query.pairs else []
    by_words = view.find_words(words, limit) if rules.weights.text > 0 else []
    return [*exact, *by_words, *pairs]


def _most(rules: SearchRules) -> int:
    return min(MAX_CANDIDATES, max(1, rules.limits.max_results) * rules.candidate_multiplier)


def _ordered(scores: Mapping[int, float]) -> list[int]:
    return sorted((key for key in scores if scores[key] > 0), key=lambda key: (-scores[key], key))


def _diversified(candidates: Sequence[ScoredChunk], weight: float) -> list[ScoredChunk]:
    by_id = {item.chunk.id: item for item in candidates}
    words = {key: frozenset(item.chunk.text.lower().split()) for key, item in by_id.items()}

    def alike(one: int, other: int) -> float:
        either = len(words[one] | words[other])
        return len(words[one] & words[other]) / either if either else 1.0

    order = diversify(list(by_id), {key: item.parts.final for key, item in by_id.items()}, alike, weight)
    return [by_id[key] for key in order]


RRF_K = 60
DECAY_FLOOR = 0.85
COSINE_BASE = 0.3
ENOUGH_WORDS = 0.5


def relative_to_best(scores: Mapping[int, float]) -> dict[int, float]:
    """Return the scores divided by the best one."""
    best = max(scores.values(), default=0.0)
    return {item: score / best if best > 0 else 0.0 for item, score in scores.items()}


def scale_cosine(cosine: float) -> float:
    """Map a cosine to a score between 0.3 and 1.

    Embedders rarely give a question and its answer more than 0.6. Unscaled, a cosine would put most answers below any
    useful threshold.
    """
    return COSINE_BASE + (1 - COSINE_BASE) * min(1.0, max(0.0, cosine))


def word_confidence(share: float) -> float:
    """Return the confidence in the best text match, given the share of the question that it contains.

    Text scores are relative to the best match, even if that match is bad. Without this factor, a note with one common
    word of the question would outrank a line that says the same in other words.
    """
    return min(1.0, share / ENOUGH_WORDS)


def reciprocal_ranks(*lists: Sequence[int]) -> dict[int, float]:
    """Return reciprocal-rank fusion scores, scaled so that an item that leads every list gets 1."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (RRF_K + rank)
    best = len(lists) / (RRF_K + 1)
    return {item: score / best for item, score in scores.items()}


def age_decay(day: date | None, today: date, half_life_days: float) -> float:
    """Return the weight of a note by its age: at least `DECAY_FLOOR`, so that age only breaks near-ties."""
    if day is None or day >= today:
        return 1.0
    left = math.exp(-math.log(2) * (today - day).days / half_life_days)
    return DECAY_FLOOR + (1 - DECAY_FLOOR) * left


def diversify(
    ranked: Sequence[int], scores: Mapping[int, float], alike: Callable[[int, int], float], weight: float
) -> list[int]:
    """Order items by maximal marginal relevance: each is relevant and unlike those before it."""
    best, worst = max(scores.values(), default=0.0), min(scores.values(), default=0.0)
    spread = best - worst or 1.0
    left = list(ranked)
    chosen: list[int] = []
    nearest = dict.fromkeys(left, 0.0)
    while left:
        pick = max(left, key=lambda item: weight * (scores[item] - worst) / spread - (1 - weight) * nearest[item])
        left.remove(pick)
        chosen.append(pick)
        for item in left:
            nearest[item] = max(nearest[item], alike(item, pick))
    return chosen
