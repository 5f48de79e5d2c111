"""Which commands an agent may run without asking: patterns over argv, and the rules around them.

A pattern is matched word by word, so that no operator, quote or blank inside a word can mean anything:

- `*` is any run of characters and `?` any one, but neither crosses a `/`;
- as in a shell, neither matches a dot at the start of a name, and at the start of a word neither matches a `-`: an
  option must be allowed by name (`--stat`) or as such (`-*`);
- the number of words must be the same, unless the last word is `**`, which stands for any further words;
- `\\` or quotes take a character as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from msgspec import Struct, field

from retinue.core.errors import ConfigError
from retinue.core.keys import AgentId
from retinue.tools.wildcards import ANY_ONE, ANY_RUN, Mark, Wildcard, is_wild, matches

Argv = tuple[str, ...]

ANY_FURTHER = "**"
DEFAULT_SAFE_BINS = frozenset({"cut", "uniq", "head", "tail", "tr", "wc"})

_WILD: dict[str, Wildcard] = {"*": ANY_RUN, "?": ANY_ONE}
_ESCAPED = frozenset("*?\\")
_QUOTED_IN_TEXT = frozenset(" \t\n'\"")
_TOKEN = re.compile(r"\\.|.", re.DOTALL)


class ArgvPattern(Struct, frozen=True):
    """A pattern for one command; `words` are in the notation of patterns, where `\\*` is a star and `*` is not."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> ArgvPattern:
        """Read a pattern as people write it, such as `git diff *`."""
        words = tuple(_split(text))
        if not words or words[0] in ("", "\\"):
            raise ConfigError(f"The command pattern {text!r} names no program; write for example `git diff *`.")
        return cls(words)

    @classmethod
    def exactly(cls, argv: Argv) -> ArgvPattern:
        """The pattern that matches this command and no other."""
        return cls(tuple(_escape(word) for word in argv))

    def matches(self, argv: Argv) -> bool:
        """Whether a command is one of those meant."""
        words = self.words
        if words[-1] == ANY_FURTHER:
            words = words[:-1]
            if len(argv) < max(len(words), 1):
                return False
        elif len(argv) != len(words):
            return False
        return all(_word_matches(pattern, word) for pattern, word in zip(words, argv, strict=False))

    def __str__(self) -> str:
        return " ".join(_show(word) for word in self.words)


def _split(text: str) -> list[str]:
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    characters = iter(text)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
                continue
            piece = _escape(character)
        elif character in " \t\n":
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        elif character in "'\"":
            quote, piece = character, ""
        elif character == "\\":
            piece = _escape(next(characters, "\\"))
        else:
            piece = character
        word = [piece] if word is None else [*word, piece]
    if quote:
        raise ConfigError(f"In the command pattern {text!r} a quote is not closed.")
    return words if word is None else [*words, "".join(word)]


def _escape(text: str) -> str:
    return "".join(f"\\{character}" if character in _ESCAPED else character for character in text)


def _show(word: str) -> str:
    if not word:
        return "''"
    return "".join(f"\\{character}" if character in _QUOTED_IN_TEXT else character for character in word)


def _word_matches(pattern: str, word: str) -> bool:
    literal, parts = _compile(pattern)
    if literal is not None:
        return literal == word
    if parts[0] and parts[0][0] in (ANY_RUN, ANY_ONE) and word.startswith("-"):
        return False
    names = word.split("/")
    return len(parts) == len(names) and all(map(_name_matches, parts, names))


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> tuple[str | None, tuple[tuple[Mark, ...], ...]]:
    """The only word that a pattern matches, if it has no wildcards; and its parts between the slashes."""
    parts = tuple(tuple(_WILD.get(token, token[-1]) for token in _TOKEN.findall(part)) for part in pattern.split("/"))
    if any(map(is_wild, parts)):
        return None, parts
    return "/".join("".join(map(str, part)) for part in parts), parts


def _name_matches(marks: tuple[Mark, ...], name: str) -> bool:
    """Whether a part without `/` matches; never the two names that lead elsewhere, unless they are spelled out."""
    if is_wild(marks) and (name in (".", "..") or (name.startswith(".") and marks[0] != ".")):
        return False
    return matches(marks, name)


class Security(StrEnum):
    """What may run at all."""

    DENY = "deny"
    ALLOWLIST = "allowlist"
    FULL = "full"


class AskWhen(StrEnum):
    """When a person is asked."""

    OFF = "off"
    ON_MISS = "on-miss"
    ALWAYS = "always"


class SafeBinProfile(Struct, frozen=True):
    """How a filter of standard input may be called: which flags, and how many operands that are no files."""

    min_positional: int = 0
    max_positional: int = 0
    allowed_flags: frozenset[str] = frozenset()
    allowed_value_flags: frozenset[str] = frozenset()
    denied_flags: frozenset[str] = frozenset()


class CommandRules(Struct, frozen=True):
    """What one agent may run, and when a person is asked.

    `skill_bins` are programs that enabled skills name, where the configuration allows those; `trusted_dirs` are further
    folders that safe bins may come from. `ask_fallback` holds where a person was asked and nobody answered.
    """

    security: Security = Security.ALLOWLIST
    ask: AskWhen = AskWhen.ON_MISS
    ask_fallback: Security = Security.DENY
    patterns: tuple[ArgvPattern, ...] = ()
    safe_bins: frozenset[str] = DEFAULT_SAFE_BINS
    safe_bin_profiles: Mapping[str, SafeBinProfile] = field(default_factory=dict)
    trusted_dirs: tuple[str, ...] = ()
    strict_inline_eval: bool = True
    skill_bins: frozenset[str] = frozenset()


class Rulebook(Protocol):
    """Where the rules of agents are kept."""

    def rules(self, agent: AgentId) -> CommandRules:
        """What the agent may run now."""
        ...

    def used(self, agent: AgentId, pattern: ArgvPattern, command: str) -> None:
        """Record that a pattern let a command run."""
        ...

    def remember(self, agent: AgentId, patterns: Sequence[ArgvPattern], command: str, by: str) -> None:
        """Allow these from now on, because a person said so."""
        ...


class FixedRules(Struct, frozen=True):
    """A rulebook of one page that forgets what it is told."""

    page: CommandRules = field(default_factory=CommandRules)

    def rules(self, agent: AgentId) -> CommandRules:
        return self.page

    def used(self, agent: AgentId, pattern: ArgvPattern, command: str) -> None:
        """Nothing is kept."""

    def remember(self, agent: AgentId, patterns: Sequence[ArgvPattern], command: str, by: str) -> None:
        """Nothing is kept."""
