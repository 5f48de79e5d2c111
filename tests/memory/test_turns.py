"""Conversations in notes: who said a line, and whether it is a standing instruction or a preference."""

from __future__ import annotations

import pytest

from retinue.core.labels import Label
from retinue.memory.search.signals import SignalWeights, measure_signals
from retinue.memory.search.turns import owner_lines, standing_kind_of_chunk
from retinue.memory.store.protocol import StoredChunk

RULE = "User: Always answer in metric units.\nAssistant: I will."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (RULE, "instruction"),
        ("User: From now on, keep answers short.", "instruction"),
        ("User: I prefer trains to planes.", "preference"),
        ("User: When does the train leave?", None),
        ("Assistant: Always answer in metric units.", None),
    ],
)
def test_only_what_the_owner_says_is_standing(text: str, kind: str | None) -> None:
    assert standing_kind_of_chunk(text) == kind


def test_a_turn_lasts_until_the_next_speaker() -> None:
    lines = ["# Chat", "User: one", "two", "Assistant: three", "four", "User: five"]
    assert owner_lines(lines) == [False, True, True, False, False, True]


@pytest.mark.parametrize(("origin", "raised"), [(Label.OWNER, True), (Label.AGENT, True), (Label.UNTRUSTED, False)])
def test_text_of_others_does_not_rise_by_sounding_like_the_owner(origin: Label, raised: bool) -> None:
    chunk = StoredChunk(1, "memory/a.md", "memory", 0, 1, 2, RULE, "", 9, origin, None)
    assert (SignalWeights().bonus(measure_signals(chunk, 0.0, None)) > 0) is raised
