"""Standing facts: what is recognised as one, and which of them govern a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.measure import build_index

from retinue.memory.facts import MAX_FACT_CHARS, find_facts
from retinue.memory.standing import MAX_FACTS, STANDING_NOTE, added_items, read_item, without_item

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("Always use metric units.", "instruction", "Always use metric units."),
        ("Book it. Please never suggest red-eye flights!", "instruction", "Please never suggest red-eye flights!"),
        ("From now on, call me Sam.", "instruction", "From now on, call me Sam."),
        ("Answer in German from now on.", "instruction", "Answer in German from now on."),
        ("Antworte ab jetzt auf Deutsch.", "instruction", "Antworte ab jetzt auf Deutsch."),
        ("if I ask for code, show tests first", "instruction", "if I ask for code, show tests first"),
        ("I want you to always cite sources.", "instruction", "I want you to always cite sources."),
        ("A flight to Rome. I prefer aisle seats.", "preference", "I prefer aisle seats."),
        ("I'm allergic to peanuts, what can I eat?", "preference", "I'm allergic to peanuts"),
        ("My favourite colour is teal.", "preference", "My favourite colour is teal."),
        (
            "I'm planning the whole week and need some structure, so I prefer writing in the morning, can you help?",
            "preference",
            "I prefer writing in the morning",
        ),
    ],
)
def test_instructions_and_preferences_are_recognised(said: str, kind: str, text: str) -> None:
    assert [(fact.kind, fact.text) for fact in find_facts(said)] == [(kind, text)]


@pytest.mark.parametrize(
    "said",
    [
        "Never mind, I found it.",
        "Always great to see you!",
        "Never been to Rome before.",
        "Never tried the other one.",
        "I'd like a summary of this page.",
        "I prefer this one.",
        "What is my favourite colour?",
        "Should I always use metric units?",
        "He lives here from now on.",
        "Whenever I think of Rome I smile.",
        "> Always use metric units.",
        "```\nAlways use metric units.\n```",
        "Always.",
        "Always use metric units. " * 200,
    ],
)
def test_other_sentences_and_pasted_texts_are_not(said: str) -> None:
    assert find_facts(said) == []


def test_a_long_statement_is_cut_between_words() -> None:
    (fact,) = find_facts("Always check the tide table " + "and the weather of the coast " * 20)
    assert len(fact.text) <= MAX_FACT_CHARS
    assert fact.text.split()[-1] in {"and", "the", "weather", "of", "coast"}


def test_items_are_added_once_and_removed_by_line() -> None:
    facts = find_facts("Always use metric units. I prefer trains.")
    note = added_items("", facts)
    assert note.splitlines()[-2:] == ["- Always use metric units.", "- I prefer trains."]
    assert added_items(note, facts) == ""
    assert added_items("- Mine", facts[:1]) == "\n- Always use metric units.\n"
    line = note.splitlines().index("- I prefer trains.") + 1
    assert without_item(note, line).splitlines() == note.splitlines()[: line - 1]
    for missing in (0, 1, line + 1, line + 9):
        with pytest.raises(LookupError):
            without_item(note, missing)


def test_every_item_of_the_note_counts_in_whatever_words() -> None:
    assert (item := read_item("* metric units")) is not None
    assert (item.kind, item.text) == ("instruction", "metric units")
    assert (item := read_item("- I prefer trains.")) is not None
    assert item.kind == "preference"
    assert read_item("Some text.") is None


async def governing(folder: Path, message: str, notes: dict[str, str]) -> list[str]:
    for path, text in notes.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    index = await build_index(folder, folder / "index.sqlite")
    facts = await index.recall_standing(message, 1.0)
    await index.aclose()
    return [fact.text for fact in facts]


async def test_general_instructions_govern_every_message_and_preferences_related_ones(tmp_path: Path) -> None:
    note = "# Mine\n\n- Always use metric units.\n- I prefer trains to planes.\n- I prefer oat milk in coffee.\n"
    chat = "# Chat\n\nUser: Always name the platform when I ask about a journey.\nAssistant: Always say please.\n"
    notes = {STANDING_NOTE: note, "memory/chat.md": chat}
    assert await governing(tmp_path, "Which train goes to Vienna?", notes) == [
        "Always name the platform when I ask about a journey.",
        "Always use metric units.",
        "I prefer trains to planes.",
    ]


async def test_the_newest_general_instructions_are_kept_if_there_are_too_many(tmp_path: Path) -> None:
    note = "".join(f"- Always obey rule number {number}.\n" for number in range(20))
    found = await governing(tmp_path, "Hello there.", {STANDING_NOTE: note})
    assert found == [f"Always obey rule number {number}." for number in range(20 - MAX_FACTS, 20)]


async def test_notes_without_standing_facts_bring_none(tmp_path: Path) -> None:
    assert await governing(tmp_path, "Which train?", {"memory/a.md": "- Always use metric units.\n"}) == []
