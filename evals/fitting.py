"""Choosing the weights of a search without the conversation that is asked: leave-one-conversation-out.

Each conversation is asked with weights that were chosen on the others of its set, one weight after another from a fixed
start, by the questions with some evidence shown and the share of evidence shown. The product's weights play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from msgspec.structs import asdict, replace

from evals.measure import Question, Scale, is_shown, within
from retinue.memory.embedding import BuiltInEmbedder, embed_checked
from retinue.memory.index import MemoryIndex
from retinue.memory.search.hybrid import Candidates, find_candidates, rank_candidates
from retinue.memory.search.query import focus_text, parse_query
from retinue.memory.search.rules import SearchRules
from retinue.memory.search.signals import LineWeights, SignalWeights
from retinue.memory.search.words import Stemmer

TODAY = date(2026, 1, 1)
PASSES = 2
START = SearchRules(
    signals=SignalWeights(owner=0.0, opening=0.0, instruction=0.0, preference=0.0),
    lines=LineWeights(chunk=10.0, words=0.0, before=0.0, meaning=0.0, owner=0.0, instruction=0.0),
)
SIGNALS: Mapping[str, Sequence[float]] = {
    "owner": (0.0, 0.03, 0.06, 0.1, 0.15),
    "opening": (0.0, 0.05, 0.1, 0.15, 0.2),
    "instruction": (0.0, 0.05, 0.1, 0.15, 0.2),
    "preference": (0.0, 0.03, 0.06, 0.1),
}
LINES: Mapping[str, Sequence[float]] = {
    "chunk": (6.0, 10.0, 14.0, 20.0),
    "words": (0.0, 1.0, 2.0, 3.0),
    "before": (0.0, 0.6, 1.2),
    "meaning": (0.0, 2.0, 3.5, 5.0),
    "owner": (0.0, 1.5, 3.0),
    "instruction": (0.0, 1.2, 2.4),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question and what the search finds for it, whatever the weights."""

    question: Question
    found: Candidates | None


async def prepare(index: MemoryIndex, questions: Sequence[Question], embedder: BuiltInEmbedder) -> list[Prepared]:
    """Find the candidates of each question, which the weights do not change."""
    stemmer = Stemmer()
    prepared = []
    for question in questions:
        query = parse_query(question.text)
        vector = (await embed_checked(embedder, [focus_text(query)], query=True))[0]
        with index.store.reading() as view:
            prepared.append(Prepared(question, find_candidates(view, query, vector, START, stemmer)))
    stemmer.close()
    return prepared


class Fitting:
    """Chooses weights on conversations; what a choice shows of each conversation is computed once."""

    def __init__(self, conversations: Sequence[Sequence[Prepared]], whole: Scale, tight: Scale) -> None:
        self._conversations = conversations
        self._whole, self._tight = whole, tight
        self._known: dict[tuple[SearchRules, str, int], float] = {}
        self._stemmer = Stemmer()
        signals = [each for asked in conversations for one in asked if one.found for each in one.found.signals.values()]
        # Dialogues between two people have no owner, so what the owner says need not be weighed.
        self._present = {name for name in SIGNALS if any(getattr(each, name) for each in signals)}

    def choose_without(self, left_out: int) -> SearchRules:
        """Return the weights that are best for the other conversations.

        The signals decide which chunks come first, so they are chosen by whole chunks, and those of lines by what is
        shown within a small budget.
        """
        rules = START
        for _ in range(PASSES):
            for name, values in SIGNALS.items():
                if name not in self._present:
                    continue
                rules = self._best(_with_signal(rules, name, values), self._whole, left_out)
            for name, values in LINES.items():
                if name in SIGNALS and name not in self._present:
                    continue
                rules = self._best(_with_line(rules, name, values), self._tight, left_out)
        return rules

    def _best(self, choices: Iterator[SearchRules], scale: Scale, left_out: int) -> SearchRules:
        others = [number for number in range(len(self._conversations)) if number != left_out]
        return max(choices, key=lambda rules: sum(self._rate(rules, scale, number) for number in others))

    def _rate(self, rules: SearchRules, scale: Scale, number: int) -> float:
        key = (rules, scale.name, number)
        if key not in self._known:
            self._known[key] = sum(
                any(shown) + sum(shown) / len(shown)
                for shown in (self._shown(each, rules, scale) for each in self._conversations[number])
            )
        return self._known[key]

    def _shown(self, prepared: Prepared, rules: SearchRules, scale: Scale) -> list[bool]:
        if prepared.found is None:
            return [False for _ in prepared.question.evidence]
        rules = replace(rules, limits=scale.limits)
        hits = within(rank_candidates(prepared.found, rules, self._stemmer, TODAY).hits, scale.tokens)
        return [is_shown(evidence, hits) for evidence in prepared.question.evidence]


def _with_signal(rules: SearchRules, name: str, values: Sequence[float]) -> Iterator[SearchRules]:
    for value in values:
        yield replace(rules, signals=SignalWeights(**asdict(rules.signals) | {name: value}))


def _with_line(rules: SearchRules, name: str, values: Sequence[float]) -> Iterator[SearchRules]:
    for value in values:
        yield replace(rules, lines=LineWeights(**asdict(rules.lines) | {name: value}))


async def leave_one_out(
    conversations: Sequence[tuple[MemoryIndex, Sequence[Question]]],
    whole: Scale,
    tight: Scale,
    tell: Callable[[str], None],
) -> list[SearchRules]:
    """Return for each conversation the rules that were chosen without it."""
    embedder = BuiltInEmbedder()
    fitting = Fitting([await prepare(index, questions, embedder) for index, questions in conversations], whole, tight)
    chosen = []
    for number in range(len(conversations)):
        rules = fitting.choose_without(number)
        tell(f"without conversation {number + 1}: {asdict(rules.signals)} {asdict(rules.lines)}")
        chosen.append(rules)
    return chosen
