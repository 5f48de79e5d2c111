"""Joining scores, choosing hits, cutting snippets: values in, values out."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.labels import Label
from retinue.memory.search.hybrid import (
    DECAY_FLOOR,
    age_decay,
    diversify,
    reciprocal_ranks,
    relative_to_best,
    word_confidence,
)
from retinue.memory.search.lexical import TermMatch, weigh_lines, weigh_terms
from retinue.memory.search.query import parse_query
from retinue.memory.search.ranking import (
    LineRating,
    ScoredChunk,
    ScoreParts,
    build_hits,
    sort_by_score,
)
from retinue.memory.search.rules import SearchLimits, SearchWeights
from retinue.memory.search.snippets import ScoredLine, cut_snippet, split_long_line
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import IndexTotals, Source, StoredChunk

TODAY = date(2026, 1, 1)


def candidate(
    number: int,
    score: float,
    text: str | None = None,
    *,
    path: str | None = None,
    start: int = 1,
    words: float = 0.0,
    exact: int = 0,
    source: Source = "memory",
    origin: Label = Label.AGENT,
) -> ScoredChunk:
    text = f"word {number}" if text is None else text
    lines = text.split("\n")
    chunk = StoredChunk(
        number, path or f"memory/{number}.md", source, 0, start, start + len(lines) - 1, text, "", 9, origin, None
    )
    return ScoredChunk(chunk, TermMatch(words, words, frozenset(), exact), ScoreParts(score, words, 0.0, 1.0, score))


def weigh(lines: object) -> list[float]:
    return [float(str(line).count("!")) for line in lines]  # type: ignore[attr-defined]


def shown(candidates: list[ScoredChunk], limits: SearchLimits | None = None) -> list[str]:
    return [hit.path for hit in build_hits(sort_by_score(candidates), limits or SearchLimits(), LineRating(weigh, 1.0))]


def test_the_best_text_score_is_one_and_the_others_are_shares_of_it() -> None:
    assert relative_to_best({1: 8.0, 2: 2.0}) == {1: 1.0, 2: 0.25}
    assert relative_to_best({1: 0.0}) == {1: 0.0}


def test_weights_are_made_to_add_up_to_one() -> None:
    assert SearchWeights.of(0.7, 0.7) == SearchWeights(0.5, 0.5)
    assert SearchWeights.of(0, 0) == SearchWeights(0.5, 0.5)


def test_reciprocal_ranks_reward_being_high_in_both_lists() -> None:
    fused = reciprocal_ranks([1, 2, 3], [2, 1, 4])
    assert fused[1] == fused[2] > fused[3] == fused[4]
    assert reciprocal_ranks([1], [1])[1] == pytest.approx(1.0)


def test_words_that_hold_little_of_the_question_are_trusted_little() -> None:
    assert word_confidence(0.1) < word_confidence(0.3) < word_confidence(0.5) == word_confidence(1.0) == 1.0


@given(st.integers(0, 20_000))
def test_age_never_hides_a_note(days: int) -> None:
    assert DECAY_FLOOR <= age_decay(TODAY - timedelta(days=days), TODAY, 30) <= 1.0


def test_of_two_alike_the_newer_counts_more_and_a_note_without_a_day_does_not_age() -> None:
    assert age_decay(TODAY - timedelta(days=30), TODAY, 30) < age_decay(TODAY - timedelta(days=1), TODAY, 30)
    assert age_decay(None, TODAY, 30) == age_decay(TODAY + timedelta(days=5), TODAY, 30) == 1.0


def test_diversity_passes_over_what_says_the_same() -> None:
    def alike(one: int, other: int) -> float:
        return 1.0 if {one, other} == {1, 2} else 0.0

    assert diversify([1, 2, 3], {1: 1.0, 2: 0.9, 3: 0.8}, alike, 0.5) == [1, 3, 2]
    assert diversify([1, 2, 3], {1: 1.0, 2: 0.9, 3: 0.8}, alike, 1.0) == [1, 2, 3]


def test_a_low_score_is_left_out_unless_it_is_exact_or_the_best_by_words() -> None:
    found = [candidate(1, 0.9), candidate(2, 0.1), candidate(3, 0.1, exact=1), candidate(4, 0.1, words=0.4)]
    assert shown(found) == ["memory/1.md", "memory/3.md", "memory/4.md"]


def test_equal_scores_come_in_the_order_of_their_paths() -> None:
    assert shown([candidate(2, 0.5), candidate(1, 0.5), candidate(3, 0.5)]) == [f"memory/{n}.md" for n in (1, 2, 3)]


def test_sessions_take_at_most_half_the_places_while_there_are_notes() -> None:
    sessions = [candidate(n, 0.9, path=f"sessions/{n}.md", source="sessions") for n in range(6)]
    notes = [candidate(n, 0.5) for n in range(10, 16)]
    found = shown(sessions + notes)
    assert len(found) == 6
    assert sum(path.startswith("sessions/") for path in found) == 3
    assert len(shown(sessions)) == 6
    assert len(shown([*sessions, candidate(10, 0.5)])) == 6


def test_overlapping_chunks_show_each_line_once_and_join_into_one_hit() -> None:
    lines = [f"line {n} !" for n in range(1, 31)]
    one = candidate(1, 0.9, "\n".join(lines[:18]), path="memory/a.md")
    other = candidate(2, 0.8, "\n".join(lines[14:]), path="memory/a.md", start=15)
    (hit,) = build_hits([one, other], SearchLimits(), LineRating(weigh, 1.0))
    assert (hit.start_line, hit.end_line) == (1, 30)
    assert hit.snippet.split("\n") == lines


def test_a_joined_hit_is_as_untrusted_as_its_worst_part() -> None:
    one = candidate(1, 0.9, "a !", path="memory/a.md")
    other = candidate(2, 0.8, "b !", path="memory/a.md", start=2, origin=Label.UNTRUSTED)
    (hit,) = build_hits([one, other], SearchLimits(), LineRating(weigh, 1.0))
    assert hit.origin.is_foreign


def test_all_hits_together_stay_within_the_budget() -> None:
    found = [candidate(n, 0.9, f"{'word ' * 200}!") for n in range(20)]
    hits = build_hits(found, SearchLimits(max_results=20, total_chars=2_000), LineRating(weigh, 1.0))
    assert sum(len(hit.snippet) for hit in hits) <= 2_000
    assert all(len(hit.snippet) <= 700 for hit in hits)


def test_a_snippet_is_centred_on_the_lines_that_match() -> None:
    lines = [ScoredLine(n, f"line {n} " + "x" * 40, 5.0 if n == 25 else 0.0) for n in range(1, 51)]
    snippet = cut_snippet(lines, 300)
    assert snippet.start_line < 25 < snippet.end_line
    assert snippet.text.split("\n") == [line.text for line in lines[snippet.start_line - 1 : snippet.end_line]]
    assert len(snippet.text) <= 300


@given(
    st.lists(st.tuples(st.text(alphabet="ab ", max_size=80), st.floats(0, 9)), min_size=1, max_size=40),
    st.integers(80, 500),
)
def test_a_snippet_is_always_exactly_its_lines(rows: list[tuple[str, float]], room: int) -> None:
    lines = [ScoredLine(number, text, weight) for number, (text, weight) in enumerate(rows, start=7)]
    snippet = cut_snippet(lines, room)
    wanted = [line.text for line in lines if snippet.start_line <= line.number <= snippet.end_line]
    assert snippet.text == "\n".join(wanted)
    assert len(snippet.text) <= room


def test_a_long_line_is_cut_without_losing_a_letter() -> None:
    text = "word " * 500 + "x" * 700
    assert "".join(split_long_line(text)) == text


LINES = st.lists(
    st.lists(
        st.sampled_from(["İstanbul", "istanbul", "walking", "walks", "Straße", "ﬁsh", "fish", "x", "é"]), max_size=6
    ).map(" ".join),
    max_size=8,
)

STEMMER = Stemmer()


@given(LINES)
def test_lines_weigh_the_same_together_and_alone(lines: list[str]) -> None:
    query = parse_query("walk the fish to Istanbul, Straße é")
    stemmer = STEMMER
    stems = stemmer.learn(query.words)
    terms = weigh_terms(query, stems, dict.fromkeys(stems.values(), 3), IndexTotals(1, 10, 100, 0))
    assert weigh_lines(lines, terms, stemmer) == [weigh_lines([line], terms, stemmer)[0] for line in lines]
