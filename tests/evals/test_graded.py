"""Our graded questions: a floor for every kind, so that no change makes one kind worse unseen."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from evals.diary import write_diary
from evals.graded import FACTS, KINDS
from evals.locomo import read_questions, write_notes
from evals.measure import SCALES, ask, build_index

from retinue.memory.fusion import Weights
from retinue.memory.search import Rules

pytestmark = pytest.mark.anyio

FLOORS = dict.fromkeys(KINDS, 1.0) | {"paraphrase": 0.85}


def test_there_are_enough_questions_of_every_kind() -> None:
    assert len(FACTS) >= 60
    assert all(sum(fact.kind == kind for fact in FACTS) >= 7 for kind in KINDS)


@pytest.mark.slow
async def test_the_answer_is_shown_within_four_thousand_characters(tmp_path: Path) -> None:
    questions = write_diary(tmp_path)
    assert all(len(question.evidence) == 1 for question in questions)
    index = await build_index(tmp_path, tmp_path / "index.sqlite")
    totals = (await index.status()).totals
    assert totals.files >= 300
    assert totals.chunks >= 2_000
    (scale,) = [scale for scale in SCALES if scale.name.endswith("chars")]
    shown: dict[str, list[bool]] = defaultdict(list)
    for question in questions:
        shown[question.kind] += await ask(index, question, index.rules, scale)
    rates = {kind: sum(found) / len(found) for kind, found in shown.items()}
    assert {kind: rate for kind, rate in rates.items() if rate < FLOORS[kind]} == {}
    faded = Rules(half_life_days=30.0)
    old = [await ask(index, question, faded, scale) for question in questions if question.kind in ("old", "exact")]
    assert all(map(all, old)), "age hid an answer"
    await index.aclose()


async def test_dialogues_become_notes_with_one_turn_a_line(tmp_path: Path) -> None:
    conversation = {
        "sessions": [
            {
                "id": "session_1",
                "date_time": "1 pm on 8 May, 2023",
                "turns": [
                    {"dia_id": "D1:1", "speaker": "Ana", "text": "I adopted a parrot\ncalled Kiko."},
                    {"dia_id": "D1:2", "speaker": "Ben", "text": "How lovely!", "image_caption": "a green bird"},
                ],
            }
        ],
        "questions": [
            {"question": "What is the parrot called?", "evidence": ["D1:1"], "category": 1},
            {"question": "Unanswerable?", "evidence": ["D9:9"], "category": 1},
        ],
    }
    lines = write_notes(conversation, tmp_path)
    (question,) = read_questions(conversation, lines)
    assert (tmp_path / "memory" / "session_1.md").read_text().split("\n")[2:4] == [
        "Ana: I adopted a parrot called Kiko.",
        "Ben: How lovely! [shares a green bird]",
    ]
    index = await build_index(tmp_path, tmp_path / "index.sqlite")
    assert await ask(index, question, Rules(weights=Weights.of(0, 1)), SCALES[0]) == [True]
    await index.aclose()
