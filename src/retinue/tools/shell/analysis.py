"""Analysis of a command line: which programs it starts, or that this cannot be known.

For every accepted command line, a shell and our own runner start the same programs with the same arguments. Everything
else is `NotAnalysable` and needs a person's approval.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.filename_expansion import DirectoryListing, expand_word
from retinue.tools.shell.lexer import Lexeme, Operator, Redirection, UnsupportedSyntax, Word, lex

MAX_CHARACTERS = 20_000
MAX_WORDS = 5_000


class Joiner(StrEnum):
    """When a pipeline runs, depending on the exit status of the one before it."""

    ALWAYS = ";"
    ON_SUCCESS = "&&"
    ON_FAILURE = "||"


class PipelineStep(Struct, frozen=True):
    """A pipeline and when it runs; `redirections` is empty or has one entry per program."""

    joiner: Joiner
    pipeline: tuple[Argv, ...]
    redirections: tuple[tuple[Redirection, ...], ...] = ()


class AnalysedCommand(Struct, frozen=True):
    """A command line whose programs and arguments are all known."""

    steps: tuple[PipelineStep, ...]

    @property
    def commands(self) -> tuple[Argv, ...]:
        return tuple(argv for step in self.steps for argv in step.pipeline)

    def with_commands(self, commands: tuple[Argv, ...]) -> AnalysedCommand:
        """Return the same command line with its commands replaced in order."""
        rest = iter(commands)
        return AnalysedCommand(
            tuple(
                PipelineStep(step.joiner, tuple(next(rest) for _ in step.pipeline), step.redirections)
                for step in self.steps
            )
        )


class NotAnalysable(Struct, frozen=True):
    """A command line that only a shell can interpret; `because` completes "cannot be analysed: …"."""

    because: str


class CommandLocation(Struct, frozen=True):
    """Where a command would run: the home folder of its environment and the names below its working folder.

    Without `home` a `~` is not analysable, and without `listing` a `*` is not.
    """

    home: str | None = None
    listing: DirectoryListing | None = None


UNKNOWN_LOCATION = CommandLocation()

_RESERVED = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"}
    | {"function", "time", "coproc", "{", "}", "!", "[[", "]]"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=", re.DOTALL)


def analyse(text: str, location: CommandLocation = UNKNOWN_LOCATION) -> AnalysedCommand | NotAnalysable:
    """Analyse a command line. The result is exact or `NotAnalysable`, never a guess."""
    if len(text) > MAX_CHARACTERS:
        return NotAnalysable(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        steps = _parse(lex(text, location.home), location.listing)
    except UnsupportedSyntax as reason:
        return NotAnalysable(str(reason))
    return AnalysedCommand(steps) if steps else NotAnalysable("it is empty")


def _parse(lexemes: list[Lexeme], listing: DirectoryListing | None) -> tuple[PipelineStep, ...]:
    steps: list[PipelineStep] = []
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
            raise UnsupportedSyntax(f"a command is missing before `{lexeme.text}`")
        pipeline.append(
            (_expand_command(words, listing), tuple(part for part in current if isinstance(part, Redirection)))
        )
        current = []
        if lexeme.text != "|":
            moves = tuple(redirections for _, redirections in pipeline)
            steps.append(PipelineStep(joiner, tuple(argv for argv, _ in pipeline), moves if any(moves) else ()))
            pipeline, joiner = [], Joiner(lexeme.text)
    return tuple(steps)


def _expand_command(words: list[Word], listing: DirectoryListing | None) -> Argv:
    first = words[0]
    if not first.text:
        raise UnsupportedSyntax("a command has an empty name")
    if first.wild:
        raise UnsupportedSyntax("the name of a program has wildcards")
    if not first.quoted and first.text in _RESERVED:
        raise UnsupportedSyntax(f"`{first.text}` is a reserved word of the shell")
    if first.text.startswith("%"):
        raise UnsupportedSyntax(f"`{first.text}` may name a shell job")
    if _ASSIGNMENT.match(first.text):
        raise UnsupportedSyntax(f"`{first.text}` sets a variable")
    argv = tuple(name for word in words for name in expand_word(word, listing))
    if len(argv) > MAX_WORDS:
        raise UnsupportedSyntax(f"it has more than {MAX_WORDS:,} words")
    return argv
