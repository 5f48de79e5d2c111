"""Signals of a candidate: cheap facts about a chunk and a query, and what some of them add to its score.

The weights were chosen on the dialogues named in docs/memory.md; `evals.fitting` chooses them without the one that is
asked.
"""

from __future__ import annotations

from msgspec import Struct

from retinue.memory.search.turns import standing_kind_of_chunk, starts_owner_turn
from retinue.memory.store.protocol import Similarity, StoredChunk


class Signals(Struct, frozen=True):
    """What is known about a candidate, each between 0 and 1."""

    words: float = 0.0
    """BM25 relative to the best candidate, less if even the best contains little of the query."""
    chunk: float = 0.0
    """The cosine of the whole chunk with the query."""
    line: float = 0.0
    """The cosine of the nearest line with the query."""
    owner: float = 0.0
    """Whether the chunk begins with what the owner said in a conversation."""
    opening: float = 0.0
    """The cosine of that first line."""
    instruction: float = 0.0
    """Whether the owner gave a standing instruction in it."""
    preference: float = 0.0
    """Whether the owner stated a preference in it."""


NO_SIGNALS = Signals()


class SignalWeights(Struct, frozen=True):
    """The weights of the signals that are added to a score."""

    owner: float = 0.06
    opening: float = 0.13
    instruction: float = 0.11
    preference: float = 0.065

    def bonus(self, signals: Signals) -> float:
        """Return what is added because of who said it and what kind of sentence it is."""
        return (
            self.owner * signals.owner
            + self.opening * signals.opening
            + self.instruction * signals.instruction
            + self.preference * signals.preference
        )


class LineWeights(Struct, frozen=True):
    """How much speaks for showing a line. The sum is an exponent, so that values of lines can be added."""

    chunk: float = 14.0
    """The score of its chunk."""
    words: float = 1.9
    """The share of the query's words on it."""
    before: float = 0.65
    """The share of the query's words on the line before."""
    meaning: float = 3.3
    """Its cosine with the query."""
    owner: float = 2.7
    """Whether the owner said it in a conversation."""
    instruction: float = 1.25
    """Whether it is a standing instruction of the owner."""


def measure_signals(chunk: StoredChunk, words: float, similar: Similarity | None) -> Signals:
    """Return the signals of a chunk; `words` is its relative BM25 score."""
    near = similar.lines if similar else ()
    cosine = max(0.0, similar.chunk) if similar else 0.0
    # Text of others cannot raise itself by sounding like the owner.
    is_owner = not chunk.origin.is_foreign and starts_owner_turn(chunk.text)
    standing = standing_kind_of_chunk(chunk.text) if is_owner else None
    return Signals(
        words,
        cosine,
        max(0.0, *near) if near else cosine,
        float(is_owner),
        max(0.0, near[0]) if is_owner and near else cosine * is_owner,
        float(standing == "instruction"),
        float(standing == "preference"),
    )
