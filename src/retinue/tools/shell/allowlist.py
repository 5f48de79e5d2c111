"""The allowlist: patterns over argv, and the rules for running commands without approval.

A pattern is matched word by word, so an operator, quote or blank inside a word has no special meaning:

- `*` matches any number of characters and `?` matches one; neither matches a `/`;
- as in a shell, neither matches a dot at the start of a name; at the start of a word neither matches a `-`, so an
  option must be allowed by name (`--stat`) or explicitly (`-*`);
- the number of words must be equal, unless the last word is `**`, which matches any further words;
- `\\` or quotes make a character literal.
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
from retinue.tools.shell.lexer import ANY_ONE, ANY_RUN, PatternElement, Wildcard, has_wildcard, matches

Argv = tuple[str, ...]

ANY_FURTHER = "**"
DEFAULT_SAFE_BINS = frozenset({"cut", "uniq", "head", "tail", "tr", "wc"})

_WILD: dict[str, Wildcard] = {"*": ANY_RUN, "?": ANY_ONE}
_ESCAPED = frozenset("*?\\")
_QUOTED_IN_TEXT = frozenset(" \t\n'\"")
_TOKEN = re.compile(r"\\.|.", re.DOTALL)


ContentHashes = tuple[tuple[str, str], ...]
"""Files and their hashes, in the order of the names."""


class ArgvPattern(Struct, frozen=True):
    """A pattern for one command; `words` are in pattern notation, so a literal star is `\\*`.

    `content` are the files whose code the command runs, with their hashes: the pattern holds only while they have this
    content. A pattern without it (None) holds for any content.
    """

    words: tuple[str, ...]
    content: ContentHashes | None = None

    @classmethod
    def parse(cls, text: str) -> ArgvPattern:
        """Parse a pattern as it is written in the configuration, such as `git diff *`."""
        words = tuple(_split(text))
        if not words or words[0] in ("", "\\"):
            raise ConfigError(f"The command pattern {text!r} does not name a program. Write for example `git diff *`.")
        return cls(words)

    @classmethod
    def exactly(cls, argv: Argv) -> ArgvPattern:
        """Return the pattern that matches only this command."""
        return cls(tuple(_escape(word) for word in argv))

    def bound_to(self, content: ContentHashes) -> ArgvPattern:
        """Return the same pattern, valid only for this content of the files that the command runs."""
        return ArgvPattern(self.words, content)

    @property
    def is_exact(self) -> bool:
        """Whether the pattern matches only one command."""
        return self.words[-1] != ANY_FURTHER and all(_compile(word)[0] is not None for word in self.words)

    def matches(self, argv: Argv) -> bool:
        """Return whether the pattern matches a command."""
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
        raise ConfigError(f"The command pattern {text!r} has an unclosed quote.")
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
def _compile(pattern: str) -> tuple[str | None, tuple[tuple[PatternElement, ...], ...]]:
    """Return the only word that a pattern matches, if it has no wildcards, and its parts between the slashes."""
    parts = tuple(tuple(_WILD.get(token, token[-1]) for token in _TOKEN.findall(part)) for part in pattern.split("/"))
    if any(map(has_wildcard, parts)):
        return None, parts
    return "/".join("".join(map(str, part)) for part in parts), parts


def _name_matches(marks: tuple[PatternElement, ...], name: str) -> bool:
    """Return whether a part without `/` matches. Wildcards never match `.`, `..` or hidden names."""
    if has_wildcard(marks) and (name in (".", "..") or (name.startswith(".") and marks[0] != ".")):
        return False
    return matches(marks, name)


class Security(StrEnum):
    """Which commands may run."""

    DENY = "deny"
    ALLOWLIST = "allowlist"
    FULL = "full"


class AskWhen(StrEnum):
    """When a person is asked for approval."""

    OFF = "off"
    ON_MISS = "on-miss"
    ALWAYS = "always"


class SafeBinSpec(Struct, frozen=True):
    """The arguments that a safe bin may have: its flags, and how many operands that are not files."""

    min_positional: int = 0
    max_positional: int = 0
    allowed_flags: frozenset[str] = frozenset()
    allowed_value_flags: frozenset[str] = frozenset()
    denied_flags: frozenset[str] = frozenset()


class CommandRules(Struct, frozen=True):
    """What one agent may run, and when a person is asked.

    `skill_bins` are the programs of enabled skills if the configuration allows them. `trusted_dirs` are further folders
    for safe bins. `ask_fallback` applies if a person was asked and did not answer.
    """

    security: Security = Security.ALLOWLIST
    ask: AskWhen = AskWhen.ON_MISS
    ask_fallback: Security = Security.DENY
    patterns: tuple[ArgvPattern, ...] = ()
    safe_bins: frozenset[str] = DEFAULT_SAFE_BINS
    safe_bin_profiles: Mapping[str, SafeBinSpec] = field(default_factory=dict)
    trusted_dirs: tuple[str, ...] = ()
    strict_inline_eval: bool = True
    skill_bins: frozenset[str] = frozenset()


class CommandRuleStore(Protocol):
    """Stores the command rules of agents."""

    def rules(self, agent: AgentId) -> CommandRules:
        """Return the current rules of an agent."""
        ...

    def record_use(self, agent: AgentId, pattern: ArgvPattern, command: str) -> None:
        """Record that a pattern allowed a command to run."""
        ...

    def add_patterns(self, agent: AgentId, patterns: Sequence[ArgvPattern], command: str, by: str) -> None:
        """Allow these patterns from now on; `by` is the person who decided it."""
        ...


class FixedCommandRules(Struct, frozen=True):
    """A store with the same rules for all agents that stores nothing."""

    fixed: CommandRules = field(default_factory=CommandRules)

    def rules(self, agent: AgentId) -> CommandRules:
        return self.fixed

    def record_use(self, agent: AgentId, pattern: ArgvPattern, command: str) -> None:
        """Discard the call."""

    def add_patterns(self, agent: AgentId, patterns: Sequence[ArgvPattern], command: str, by: str) -> None:
        """Discard the call."""
