"""Joining what words say and what vectors say about the same chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from msgspec import Struct

RRF_K = 60
DECAY_FLOOR = 0.85
COSINE_BASE = 0.3
ENOUGH_WORDS = 0.5


class Weights(Struct, frozen=True):
    """How much meaning and words count; together 1."""

    vector: float
    text: float

    @classmethod
    def of(cls, vector: float, text: float) -> Weights:
        total = vector + text
        return cls(vector / total, text / total) if total > 0 else cls(0.5, 0.5)


class Parts(Struct, frozen=True):
    """How a score came about; each part is between 0 and 1 and `final` is what counts."""

    vector: float
    text: float
    exact: float
    decay: float
    final: float


def share_of_best(scores: Mapping[int, float]) -> dict[int, float]:
    """Scores as shares of the best one."""
    best = max(scores.values(), default=0.0)
    return {item: score / best if best > 0 else 0.0 for item, score in scores.items()}


def spread_cosine(cosine: float) -> float:
    """A cosine as a score between 0 and 1.

    Embedders rarely give a question and its answer more than 0.6. Taken as it is, a cosine would decide the order more
    than words do and still put most answers below any useful threshold.
    """
    return COSINE_BASE + (1 - COSINE_BASE) * min(1.0, max(0.0, cosine))


def trust_in_words(share: float) -> float:
    """How far the best match by words can be trusted, by the share of the question that it holds.

    The best of several bad matches is still the best; without this, one common word that happens to stand in a note
    would outweigh a line that says what was asked in other words.
    """
    return min(1.0, share / ENOUGH_WORDS)


def reciprocal_ranks(*lists: Sequence[int]) -> dict[int, float]:
    """Reciprocal-rank fusion, scaled so that an item which leads every list gets 1."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (RRF_K + rank)
    best = len(lists) / (RRF_K + 1)
    return {item: score / best for item, score in scores.items()}


def decay(day: date | None, today: date, half_life_days: float) -> float:
    """How much an old note still counts: never less than the floor, so that age orders near-ties and hides nothing."""
    if day is None or day >= today:
        return 1.0
    left = math.exp(-math.log(2) * (today - day).days / half_life_days)
    return DECAY_FLOOR + (1 - DECAY_FLOOR) * left


def diversify(
    ranked: Sequence[int], scores: Mapping[int, float], alike: Callable[[int, int], float], weight: float
) -> list[int]:
    """Maximal marginal relevance: each next item is relevant and unlike those before it."""
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
