"""Our graded questions: a floor for every kind, so that no change makes one kind worse unseen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from evals.diary import held_out_questions, write_diary
from evals.graded import FACTS, KINDS
from evals.held_out import HELD_OUT
from evals.locomo import write_notes
from evals.measure import SCALES, Block, Question, ask, build_index

from evals import beam
from retinue.memory.index import MemoryIndex
from retinue.memory.search.rules import SearchRules, SearchWeights

pytestmark = pytest.mark.anyio

FLOORS = dict.fromkeys(KINDS, 1.0) | {"paraphrase": 0.85}
HELD_OUT_FLOORS = dict.fromkeys(KINDS, 0.8) | {"paraphrase": 0.28}
"""What was measured the one time they were asked, less one question of each kind."""

(BUDGET,) = [scale for scale in SCALES if scale.name.endswith("chars")]


def test_there_are_enough_questions_of_every_kind() -> None:
    assert len(FACTS) >= 60
    assert all(sum(fact.kind == kind for fact in FACTS) >= 7 for kind in KINDS)


def test_the_held_out_questions_are_of_every_kind_and_others_than_the_tuned_ones() -> None:
    assert len(HELD_OUT) >= 30
    assert {asked.kind for asked in HELD_OUT} == set(KINDS)
    assert not {asked.question for asked in HELD_OUT} & {fact.question for fact in FACTS}


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five years of notes and their index, made once."""
    folder = tmp_path_factory.mktemp("diary")
    write_diary(folder)

    async def make() -> None:
        await (await build_index(folder, folder / "index.sqlite")).aclose()

    anyio.run(make)
    return folder


async def rate(index: MemoryIndex, questions: Sequence[Question]) -> dict[str, float]:
    """The share of questions of each kind whose answer is shown within the product's budget."""
    shown: dict[str, list[bool]] = defaultdict(list)
    for question in questions:
        shown[question.kind] += await ask(index, question, index.rules, BUDGET)
    return {kind: sum(found) / len(found) for kind, found in shown.items()}


@pytest.mark.slow
async def test_the_answer_is_shown_within_four_thousand_characters(diary: Path, tmp_path: Path) -> None:
    questions = write_diary(tmp_path)
    assert all(len(question.evidence) == 1 for question in questions)
    index = await build_index(diary, diary / "index.sqlite")
    totals = (await index.status()).totals
    assert totals.files >= 300
    assert totals.chunks >= 2_000
    rates = await rate(index, questions)
    assert {kind: rate for kind, rate in rates.items() if rate < FLOORS[kind]} == {}
    faded = SearchRules(half_life_days=30.0)
    old = [await ask(index, question, faded, BUDGET) for question in questions if question.kind in ("old", "exact")]
    assert all(map(all, old)), "age hid an answer"
    await index.aclose()


@pytest.mark.slow
async def test_questions_that_nobody_tuned_for_are_answered_too(diary: Path) -> None:
    questions = held_out_questions(diary)
    assert all(len(question.evidence) == 1 for question in questions)
    index = await build_index(diary, diary / "index.sqlite")
    rates = await rate(index, questions)
    assert {kind: rate for kind, rate in rates.items() if rate < HELD_OUT_FLOORS[kind]} == {}
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
    (question,) = write_notes(conversation, tmp_path)
    assert (tmp_path / "memory" / "session_1.md").read_text().split("\n")[2:4] == [
        "Ana: I adopted a parrot called Kiko.",
        "Ben: How lovely! [shares a green bird]",
    ]
    index = await build_index(tmp_path, tmp_path / "index.sqlite")
    assert await ask(index, question, SearchRules(weights=SearchWeights.of(0, 1)), SCALES[0]) == [True]
    await index.aclose()


async def test_chats_become_notes_with_a_block_for_each_message(tmp_path: Path) -> None:
    chat = {
        "batches": [
            {
                "batch": 1,
                "messages": [
                    {"id": 0, "role": "user", "date": "", "text": "My parrot is called Kiko.\nIt sings."},
                    {"id": 1, "role": "assistant", "date": "", "text": "How lovely!"},
                ],
            }
        ],
        "questions": [
            {"ability": "extraction", "question": "What is the parrot called?", "evidence": [0]},
            {"ability": "abstention", "question": "Unanswerable?", "evidence": []},
        ],
    }
    (question,) = beam.write_notes(chat, tmp_path)
    assert (question.kind, question.evidence) == ("extraction", (Block("memory/batch-1.md", 3, 4),))
