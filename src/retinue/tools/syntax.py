"""What a command line would start: either exactly known, or not analysable.

For what is accepted, a shell and our own runner start the same programs with the same arguments. Everything else is
for a person to judge.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

from retinue.tools.allowlist import Argv
from retinue.tools.filenames import Listing, expand
from retinue.tools.lexer import Lexeme, Operator, Redirection, Unreadable, Word, lex

MAX_CHARACTERS = 20_000
MAX_WORDS = 5_000


class Joiner(StrEnum):
    """When a pipeline runs, given how the one before it ended."""

    ALWAYS = ";"
    ON_SUCCESS = "&&"
    ON_FAILURE = "||"


class Step(Struct, frozen=True):
    """A pipeline and when it runs; `redirections` is empty or has an entry for each program of the pipeline."""

    joiner: Joiner
    pipeline: tuple[Argv, ...]
    redirections: tuple[tuple[Redirection, ...], ...] = ()


class Analysed(Struct, frozen=True):
    """A command line of which every program and argument is known."""

    steps: tuple[Step, ...]

    @property
    def commands(self) -> tuple[Argv, ...]:
        return tuple(argv for step in self.steps for argv in step.pipeline)

    def with_commands(self, commands: tuple[Argv, ...]) -> Analysed:
        """The same with other programs in the same places."""
        rest = iter(commands)
        return Analysed(
            tuple(Step(step.joiner, tuple(next(rest) for _ in step.pipeline), step.redirections) for step in self.steps)
        )


class NotAnalysable(Struct, frozen=True):
    """A command line that only a shell can read; `because` completes "cannot be analysed: …"."""

    because: str


class Place(Struct, frozen=True):
    """Where a command would run: the home folder of its environment, and the names beneath its working folder.

    What is not known here cannot be used: without `home` a `~` is not analysable, without `listing` a `*` is not.
    """

    home: str | None = None
    listing: Listing | None = None


NOWHERE = Place()

_RESERVED = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"}
    | {"function", "time", "coproc", "{", "}", "!", "[[", "]]"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=", re.DOTALL)


def analyse(text: str, place: Place = NOWHERE) -> Analysed | NotAnalysable:
    """Read a command line; never guesses."""
    if len(text) > MAX_CHARACTERS:
        return NotAnalysable(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        steps = _parse(lex(text, place.home), place.listing)
    except Unreadable as reason:
        return NotAnalysable(str(reason))
    return Analysed(steps) if steps else NotAnalysable("it is empty")


def _parse(lexemes: list[Lexeme], listing: Listing | None) -> tuple[Step, ...]:
    steps: list[Step] = []
    joiner = Joiner.ALWAYS
    pipeline: list[tuple[Argv, tuple[Redirection, ...]]] = []
    current: list[Word | Redirection] = []
    if lexemes and lexemes[-1] != Operator(";"):
        lexemes = [*lexemes, Operator(";")]
    for lexeme in lexemes:
        if not isinstance(lexeme, Operator):
            current.append(lexeme)
            continue
        words = [part for part in current if isinstance(part, Word)]
        if not words:
            raise Unreadable(f"a command is missing before `{lexeme.text}`")
        pipeline.append((_command(words, listing), tuple(part for part in current if isinstance(part, Redirection))))
        current = []
        if lexeme.text != "|":
            steps.append(_step(joiner, pipeline))
            pipeline, joiner = [], Joiner(lexeme.text)
    return tuple(steps)


def _step(joiner: Joiner, pipeline: list[tuple[Argv, tuple[Redirection, ...]]]) -> Step:
    redirections = tuple(redirections for _, redirections in pipeline)
    return Step(joiner, tuple(argv for argv, _ in pipeline), redirections if any(redirections) else ())


def _command(words: list[Word], listing: Listing | None) -> Argv:
    first = words[0]
    if not first.text:
        raise Unreadable("a command has an empty name")
    if first.wild:
        raise Unreadable("the name of a program has wildcards")
    if not first.quoted and first.text in _RESERVED:
        raise Unreadable(f"`{first.text}` is a word of the shell's language")
    if first.text.startswith("%"):
        raise Unreadable(f"`{first.text}` may name a job of the shell")
    if _ASSIGNMENT.match(first.text):
        raise Unreadable(f"`{first.text}` sets a variable")
    argv = tuple(name for word in words for name in expand(word, listing))
    if len(argv) > MAX_WORDS:
        raise Unreadable(f"it has more than {MAX_WORDS:,} words")
    return argv
