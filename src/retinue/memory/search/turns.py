"""Conversations in notes: which lines the owner said, and which of them are standing instructions or preferences.

A turn is a line such as `User: Book the flight.` and the lines after it, up to the next speaker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

_NAME = r"(?:\*\*)?(?:{names})(?:\*\*)?(?: \([^)\n]{{1,40}}\))?:"
_OWNER = re.compile(_NAME.format(names="user|owner|human|me"), re.IGNORECASE)
_OTHER = re.compile(_NAME.format(names="assistant|agent|ai|bot|system|tool"), re.IGNORECASE)
_LEAD = r"(?:(?:please|and|also|okay|ok|from now on|in future|in the future|by the way|btw),?\s+)*"
_INSTRUCTION = re.compile(
    rf"{_LEAD}(?:always|never|don't ever|do not ever|whenever (?:i|you)|every time (?:i|you)|(?:when|if) i ask\b"
    r"|(?:remember|make sure|be sure) to always|i(?:'d| would)? (?:want|like|need) you to (?:always|never))\b",
    re.IGNORECASE,
)
_STARTS_WITH_HABIT = re.compile(r"from now on\b|in (?:the )?future,", re.IGNORECASE)
_PREFERENCE = re.compile(
    r"\bi(?:'d| would| really| usually| generally| always)* (?:prefer|like|love|hate|dislike|avoid|favou?r)\b"
    r"|\bmy (?:preference|favou?rite)\b",
    re.IGNORECASE,
)

StandingKind = Literal["instruction", "preference"]


def starts_owner_turn(line: str) -> bool:
    """Return whether a line begins what the owner said in a conversation."""
    return _OWNER.match(line) is not None


def owner_lines(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether the owner said it; lines before the first speaker are not the owner's."""
    said: list[bool] = []
    is_owner = False
    for line in lines:
        if _OWNER.match(line):
            is_owner = True
        elif _OTHER.match(line):
            is_owner = False
        said.append(is_owner)
    return said


def without_speaker(line: str) -> str:
    """Return what was said, without the name of the speaker and marks of lists."""
    found = _OWNER.match(line)
    return line[found.end() :].strip() if found else line.lstrip("-*• ").strip()


def standing_kind(said: str) -> StandingKind | None:
    """Return whether a sentence of the owner is an instruction for all future answers, or a preference."""
    if _INSTRUCTION.match(said) or _STARTS_WITH_HABIT.match(said):
        return "instruction"
    return "preference" if _PREFERENCE.search(said) else None


def standing_kind_of_chunk(text: str) -> StandingKind | None:
    """Return the kind of the first standing line that the owner said in a chunk; instructions come first."""
    kinds = {standing_kind(without_speaker(line)) for line in text.split("\n") if _OWNER.match(line)}
    return "instruction" if "instruction" in kinds else "preference" if "preference" in kinds else None
