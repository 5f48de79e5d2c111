"""Specification of the arguments that a command may be called with: flags, their values, and operands."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from retinue.tools.shell.allowlist import Argv

COUNT = r"[+-]?[0-9]{1,12}"
LIST = r"[0-9,-]+"
ANYTHING = r"[^\0]*"


def no_operand(operand: str) -> bool:
    """Accept no operand."""
    return False


def any_operand(operand: str) -> bool:
    """Accept every operand."""
    return True


def flags(text: str) -> frozenset[str]:
    """Split a text of flags or names that are separated by spaces."""
    return frozenset(text.split())


class ArgumentSpec(Struct, frozen=True):
    """The arguments that one command is expected to have.

    `flags` stand alone. `value_flags` are pairs of a flag and a regular expression for its value, which follows in the
    next word or after `=`. `combines_flags` allows one-letter flags to be written together. `pattern` matches flags
    that contain their value, such as `-5`. A flag that is not listed, or is abbreviated, is an objection.
    `first_is_free` accepts any first operand, such as the expression of grep, unless one of `replaces_first` is given.
    """

    flags: frozenset[str] = frozenset()
    value_flags: tuple[tuple[str, str], ...] = ()
    operand: Callable[[str], bool] = no_operand
    combines_flags: bool = False
    pattern: re.Pattern[str] | None = None
    min_operands: int = 0
    max_operands: int = 1_000
    first_is_free: bool = False
    replaces_first: frozenset[str] = frozenset()

    def objection(self, words: Argv) -> str | None:
        """Return why these arguments are not expected, or None if they are."""
        values = dict(self.value_flags)
        operands: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                operands += rest
            elif not word.startswith("-") or word == "-":
                operands.append(word)
            elif word in values:
                value = next(rest, None)
                if value is None or not re.fullmatch(values[word], value):
                    return f"the value of `{word}` is not expected"
            elif not self._is_known_flag(word, values):
                return f"the flag `{word}` is not expected"
        given = {word.partition("=")[0] for word in words}
        free = 1 if self.first_is_free and not given & self.replaces_first else 0
        unexpected = [word for word in operands[free:] if not self.operand(word)] + operands[self.max_operands :]
        if unexpected:
            return f"the operand `{unexpected[0]}` is not expected"
        return "an operand is missing" if len(operands) < self.min_operands else None

    def _is_known_flag(self, word: str, values: dict[str, str]) -> bool:
        if word in self.flags or (self.pattern is not None and self.pattern.fullmatch(word)):
            return True
        name, equals, value = word.partition("=")
        if equals and name.startswith("--") and name in values:
            return re.fullmatch(values[name], value) is not None
        return (
            self.combines_flags and not word.startswith("--") and all(f"-{letter}" in self.flags for letter in word[1:])
        )
