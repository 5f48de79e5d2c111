"""Wildcard matching in bounded time: a pattern cannot cause exponential backtracking."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class AnyRun(Struct, frozen=True):
    """Any number of characters, including none."""


class AnyOf(Struct, frozen=True):
    """One character out of a set, or with `negated` one that is not in it; the empty negated set is any character."""

    characters: frozenset[str] = frozenset()
    negated: bool = True

    def accepts(self, character: str) -> bool:
        return (character in self.characters) is not self.negated


Wildcard = AnyRun | AnyOf
PatternElement = str | Wildcard
"""A literal character or a wildcard."""

ANY_RUN = AnyRun()
ANY_ONE = AnyOf()


def has_wildcard(marks: Sequence[PatternElement]) -> bool:
    """Return whether any element is a wildcard."""
    return any(not isinstance(mark, str) for mark in marks)


def matches(marks: Sequence[PatternElement], name: str) -> bool:
    """Return whether the whole name matches.

    Backtracking only ever returns to the last `AnyRun`, so the time is at most the product of the two lengths.
    """
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
