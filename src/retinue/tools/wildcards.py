"""Matching a name against wildcards, in a time that no pattern can make long."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class AnyRun(Struct, frozen=True):
    """Any characters, also none."""


class AnyOf(Struct, frozen=True):
    """One character: of these, or with `negated` none of these; the empty negation is any character at all."""

    characters: frozenset[str] = frozenset()
    negated: bool = True

    def accepts(self, character: str) -> bool:
        return (character in self.characters) is not self.negated


Wildcard = AnyRun | AnyOf
Mark = str | Wildcard
"""One character as it is, or a wildcard."""

ANY_RUN = AnyRun()
ANY_ONE = AnyOf()


def is_wild(marks: Sequence[Mark]) -> bool:
    """Whether there is any wildcard among them."""
    return any(not isinstance(mark, str) for mark in marks)


def matches(marks: Sequence[Mark], name: str) -> bool:
    """Whether the whole name matches; goes back no further than to the last run."""
    at = position = 0
    run = resume = -1
    while position < len(name):
        mark = marks[at] if at < len(marks) else None
        if mark == ANY_RUN:
            run, resume = at, position
            at += 1
        elif mark == name[position] or (isinstance(mark, AnyOf) and mark.accepts(name[position])):
            at, position = at + 1, position + 1
        elif run >= 0:
            resume += 1
            at, position = run + 1, resume
        else:
            return False
    return all(mark == ANY_RUN for mark in marks[at:])
