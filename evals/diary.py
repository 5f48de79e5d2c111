"""Five years of somebody's notes, made up the same way every time, with the graded facts in them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

from evals.graded import FACTS, Fact
from evals.held_out import HELD_OUT
from evals.measure import Line, Question

NOTES = 340
LINES_A_NOTE = 126
FIRST_DAY = date(2021, 1, 4)

_PEOPLE = ("Jonas", "Mira", "Anton", "Clara", "Viktor", "Selma", "Hugo", "Ida", "Bruno", "Greta", "Oskar", "Paula")
_PLACES = ("the market", "the office", "the park", "the library", "the station", "the harbour", "the garden", "town")
_THINGS = (
    "the shopping list", "a letter", "the bicycle", "the report", "an old photo album", "the bread recipe", "the radio",
    "a loose shelf", "the tax papers", "the garden fence", "two library books", "the coffee machine", "a birthday card",
    "the slides for Monday", "the broken lamp", "the train tickets", "a jar of honey", "the budget table",
)  # fmt: skip
_TOPICS = (
    "the move", "the holiday", "the new printer", "the choir concert", "the school project", "the garden", "the budget",
    "the neighbours' party", "the release", "the migration plan", "the vegetable patch", "the football match",
)  # fmt: skip
_MOODS = ("tired", "content", "in a hurry", "full of plans", "a little worried", "in good spirits", "distracted")
_FORMS = (
    "Met {a} at {place} and talked about {topic} for an hour.",
    "Spent the morning with {thing}; it took longer than planned.",
    "{a} called about {topic}, will call back tomorrow.",
    "- [ ] bring {thing} to {place}",
    "- [x] answer {a} about {topic}",
    "Weather was {weather}, so we went to {place} with {a} and {b}.",
    "{a} and {b} disagree about {topic}; wait for Monday.",
    "Idea: ask {a} whether {thing} could be lent to {b}.",
    "Felt {mood} after {place}, went to bed early.",
    "Long meeting about {topic}; {a} takes notes, {b} prepares {thing}.",
    "Found {thing} behind the cupboard, gave it to {a}.",
    "Lunch with {b} near {place}, soup was too salty.",
    "Reminder: {topic} needs a decision before the end of the month.",
    "Read forty pages in the evening, {mood}.",
    "Repaired {thing} with {a}'s tools, only one screw left over.",
)
_WEATHERS = ("rainy", "bright and cold", "warm", "foggy", "windy", "grey", "snowy")


def write_diary(workspace: Path) -> list[Question]:
    """Write the notes and return the questions with the lines that answer them."""
    dice = random.Random(20_260_115)  # noqa: S311 -- the same every time, on purpose
    notes = _blank_notes(dice)
    for fact in FACTS:
        for decoy in fact.decoys:
            notes[dice.choice(sorted(notes))].insert(dice.randrange(4, 60), decoy)
    for fact in FACTS:
        _place(fact, notes, dice)
    folder = workspace / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    for path, lines in notes.items():
        (workspace / path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [Question(fact.question, _lines_with(fact.line, notes), fact.kind) for fact in FACTS]


def held_out_questions(workspace: Path) -> list[Question]:
    """The questions that nobody tunes for, with the lines of the written notes that answer them."""
    notes = {
        path.relative_to(workspace).as_posix(): path.read_text(encoding="utf-8").split("\n")
        for path in sorted((workspace / "memory").glob("*.md"))
    }
    return [Question(asked.question, _lines_with(asked.line, notes), asked.kind) for asked in HELD_OUT]


def _blank_notes(dice: random.Random) -> dict[str, list[str]]:
    wanted = {fact.note for fact in FACTS if fact.note}
    notes: dict[str, list[str]] = {}
    day = FIRST_DAY
    while len(notes) < NOTES - len(wanted):
        day += timedelta(days=dice.randint(3, 7))
        notes[f"memory/{day.isoformat()}.md"] = []
    for path in sorted(wanted | notes.keys()):
        written = date.fromisoformat(path[7:17])
        notes[path] = [f"# {written:%A}", "", "## Day", "", *(_sentence(dice) for _ in range(LINES_A_NOTE))]
        notes[path][dice.randrange(40, 60)] = "## Evening"
    return dict(sorted(notes.items()))


def _sentence(dice: random.Random) -> str:
    one, other = dice.sample(_PEOPLE, 2)
    return dice.choice(_FORMS).format(
        a=one,
        b=other,
        place=dice.choice(_PLACES),
        thing=dice.choice(_THINGS),
        topic=dice.choice(_TOPICS),
        mood=dice.choice(_MOODS),
        weather=dice.choice(_WEATHERS),
    )


def _place(fact: Fact, notes: dict[str, list[str]], dice: random.Random) -> None:
    path = fact.note or dice.choice([note for note in sorted(notes) if note > "memory/2022"])
    notes[path].insert(dice.randrange(4, len(notes[path])), fact.line)


def _lines_with(beginning: str, notes: Mapping[str, Sequence[str]]) -> tuple[Line, ...]:
    return tuple(
        Line(path, number, text)
        for path, lines in notes.items()
        for number, text in enumerate(lines, start=1)
        if text.startswith(beginning)
    )
