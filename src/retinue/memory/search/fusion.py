"""Score fusion: combines the text and vector scores of chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from msgspec import Struct

RRF_K = 60
DECAY_FLOOR = 0.85
COSINE_BASE = 0.3
ENOUGH_WORDS = 0.5


class ScoreParts(Struct, frozen=True):
    """The components of a score, each between 0 and 1; `final` is the score itself."""

    vector: float
    text: float
    exact: float
    decay: float
    final: float


def relative_to_best(scores: Mapping[int, float]) -> dict[int, float]:
    """Return the scores divided by the best one."""
    best = max(scores.values(), default=0.0)
    return {item: score / best if best > 0 else 0.0 for item, score in scores.items()}


def scale_cosine(cosine: float) -> float:
    """Map a cosine to a score between 0 and 1.

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
