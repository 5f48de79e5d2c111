"""Choosing weights without the conversation that is asked, and chats among generated ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from evals.fitting import START, Fitting, prepare
from evals.haystack import Babble, real_chats, write_haystack
from evals.measure import build_index
from evals.report import BUDGETS

from evals import beam
from retinue.memory.embedding import BuiltInEmbedder

pytestmark = pytest.mark.anyio

WHOLE, _, TIGHT = BUDGETS


def chat(about: str, instruction: str = "") -> dict[str, Any]:
    """A chat of which the owner's word holds the evidence, and the agent's long answers repeat the question."""
    said = instruction or f"My {about} is in the shed."
    messages = [{"id": 0, "role": "user", "date": "", "text": said}]
    for number in range(1, 30):
        text = "\n".join(f"About the place of a {about}: idea {number}.{line}." for line in range(12))
        messages.append({"id": number, "role": "assistant", "date": "", "text": text})
    question = {"ability": "extraction", "question": f"What is the place of my {about}?", "evidence": [0]}
    return {"batches": [{"batch": 1, "messages": messages}], "questions": [question]}


@pytest.mark.slow
async def test_the_weights_of_a_conversation_do_not_depend_on_its_own_questions(tmp_path: Path) -> None:
    embedder = BuiltInEmbedder()
    conversations = []
    for number, about in enumerate(("bicycle", "ladder", "kettle")):
        home = tmp_path / str(number)
        questions = beam.write_notes(chat(about), home)
        index = await build_index(home, home / "index.sqlite")
        conversations.append(await prepare(index, questions, embedder))
        await index.aclose()
    chosen = Fitting(conversations, WHOLE, TIGHT).choose_without(0)
    changed = Fitting([[], *conversations[1:]], WHOLE, TIGHT).choose_without(0)
    assert chosen == changed
    assert chosen != START, "what the owner says is worth more than the start says"


def test_generated_lines_are_made_of_neighbouring_words() -> None:
    babble = Babble(["one two three", "one two four"], random.Random(1))
    lines = {babble.line() for _ in range(50)}
    assert lines == {"one two three", "one two four"}


def test_real_chats_stand_among_generated_ones_of_the_wanted_size(tmp_path: Path) -> None:
    chats = [chat("bicycle"), chat("ladder")]
    write_haystack(chats, tmp_path, 50_000)
    ((notes, questions),) = real_chats(chats, 50_000)
    assert all((tmp_path / path).read_text() == text for path, text in notes.items())
    assert questions[0].evidence[0].path == "memory/chat-0/batch-1.md"
    size = sum(file.stat().st_size for file in (tmp_path / "memory").rglob("*.md"))
    assert 200_000 <= size <= 300_000
