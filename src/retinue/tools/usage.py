"""How one command may be called: which flags, which values, which operands."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from retinue.tools.allowlist import Argv

COUNT = r"[+-]?[0-9]{1,12}"
LIST = r"[0-9,-]+"
ANYTHING = r"[^\0]*"


def nothing(operand: str) -> bool:
    """No operand at all."""
    return False


def anything(operand: str) -> bool:
    """Any operand."""
    return True


def flags(text: str) -> frozenset[str]:
    """Flags, written one after the other."""
    return frozenset(text.split())


class Usage(Struct, frozen=True):
    """What an expected use of one command looks like.

    `flags` stand alone, `valued` take a value of the given shape in the next word or after `=`; `bundles` tells that
    one-letter flags may be written together; `pattern` allows spellings of its own, such as `-5`. A flag that is not
    named, or only begun, is an objection.
    """

    flags: frozenset[str] = frozenset()
    valued: tuple[tuple[str, str], ...] = ()
    operand: Callable[[str], bool] = nothing
    bundles: bool = False
    pattern: re.Pattern[str] | None = None
    least_operands: int = 0
    most_operands: int = 1_000

    def objection(self, words: Argv) -> str | None:
        """Why these arguments are not expected; None where they are."""
        values = dict(self.valued)
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
            elif not self._knows(word, values):
                return f"the flag `{word}` is not expected"
        strange = [word for word in operands if not self.operand(word)] + operands[self.most_operands :]
        if strange:
            return f"the operand `{strange[0]}` is not expected"
        return "an operand is missing" if len(operands) < self.least_operands else None

    def _knows(self, word: str, values: dict[str, str]) -> bool:
        if word in self.flags or (self.pattern is not None and self.pattern.fullmatch(word)):
            return True
        name, equals, value = word.partition("=")
        if equals and name.startswith("--") and name in values:
            return re.fullmatch(values[name], value) is not None
        return self.bundles and not word.startswith("--") and all(f"-{letter}" in self.flags for letter in word[1:])
