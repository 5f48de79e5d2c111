"""Analysis of a command line: which programs it starts, or that this cannot be known.

For every accepted command line, a shell and our own runner start the same programs with the same arguments. Everything
else is `NotAnalysable` and needs a person's approval.

Wildcards are replaced by file names as bash and dash do by default. Only names below the working folder are read, and
symbolic links are not followed: names that a sandboxed command may not see must not reach it through its arguments.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from typing import Protocol

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.storage.files.descriptors import FOLDER
from retinue.storage.files.openat import best_resolver, open_beneath, split_path
from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.lexer import (
    AnyOf,
    Lexeme,
    Operator,
    PatternElement,
    Redirection,
    UnsupportedSyntax,
    Word,
    has_wildcard,
    lex,
    matches,
)

MAX_NAMES = 10_000
_HERE = ""


class NameKind(Enum):
    """The type of a directory entry."""

    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class DirectoryListing(Protocol):
    """The names below a folder; paths are relative to it, and the empty path is the folder itself."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder, none if it cannot be read."""
        ...

    def kind(self, path: str) -> NameKind | None:
        """Return the type of a path without following a link, or None if it does not exist."""
        ...


class OpenFolderListing(Struct, frozen=True):
    """The names below an open folder."""

    descriptor: int

    def names(self, folder: str) -> Sequence[str]:
        try:
            opened = open_beneath(self.descriptor, split_path(folder or "."), FOLDER, resolver=best_resolver())
        except (OSError, RetinueError):
            return ()
        try:
            with os.scandir(opened) as entries:
                return [entry.name for entry, _ in zip(entries, range(MAX_NAMES + 1), strict=False)]
        except OSError:
            return ()
        finally:
            os.close(opened)

    def kind(self, path: str) -> NameKind | None:
        folder, _, name = path.rpartition("/")
        try:
            opened = open_beneath(self.descriptor, split_path(folder or "."), FOLDER, resolver=best_resolver())
        except (OSError, RetinueError):
            return None
        try:
            mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
        except OSError:
            return None
        finally:
            os.close(opened)
        return NameKind.FOLDER if stat.S_ISDIR(mode) else NameKind.LINK if stat.S_ISLNK(mode) else NameKind.OTHER


def expand_word(word: Word, listing: DirectoryListing | None) -> tuple[str, ...]:
    """Expand one word to itself or to the names that it matches, in the order of their bytes."""
    if not word.wild:
        return (word.text,)
    if listing is None:
        raise UnsupportedSyntax("its wildcards refer to files of a folder that is not known here")
    parts = list(_parts(word.marks))
    _check_parts(parts, word.text)
    found = [_HERE]
    for position, part in enumerate(parts):
        found = list(_extend(found, part, listing, last=position == len(parts) - 1))
        if len(found) > MAX_NAMES:
            raise UnsupportedSyntax(f"its wildcards match more than {MAX_NAMES:,} files")
    for name in found:
        _check_name(name)
    return tuple(sorted(found, key=os.fsencode)) or (word.text,)


def _parts(marks: Sequence[PatternElement]) -> Iterator[list[PatternElement]]:
    part: list[PatternElement] = []
    for mark in marks:
        if mark == "/":
            yield part
            part = []
        else:
            part.append(mark)
    yield part


def _check_parts(parts: Sequence[Sequence[PatternElement]], text: str) -> None:
    if any(not part for part in parts[:-1]) or any(list(part) == [".", "."] for part in parts):
        raise UnsupportedSyntax("its wildcards lead outside the working folder")
    if any(has_wildcard(part) and (matches(part, ".") or matches(part, "..")) and part[0] == "." for part in parts):
        raise UnsupportedSyntax("some shells expand `.*` to the folder itself and its parent")
    if "\\" in text:
        raise UnsupportedSyntax("a word has both wildcards and a `\\`")


def _extend(
    found: Sequence[str], part: Sequence[PatternElement], listing: DirectoryListing, *, last: bool
) -> Iterator[str]:
    """Extend every path found so far by the names that match the next part."""
    for path in found:
        if not has_wildcard(part):
            name = "".join(mark for mark in part if isinstance(mark, str))
            if _is_there(path + name, listing, last=last):
                yield path + name if last else f"{path}{name}/"
            continue
        for name in _candidates(path, part, listing):
            if last:
                yield path + name
            elif _is_there(path + name, listing, last=False):
                yield f"{path}{name}/"


def _candidates(folder: str, part: Sequence[PatternElement], listing: DirectoryListing) -> Iterator[str]:
    names = listing.names(folder.rstrip("/"))
    if len(names) > MAX_NAMES:
        raise UnsupportedSyntax(f"its wildcards search a folder of more than {MAX_NAMES:,} files")
    counts_characters = any(isinstance(mark, AnyOf) for mark in part)
    for name in names:
        if name.startswith(".") and part[0] != ".":
            continue
        if counts_characters and not name.isascii():
            raise UnsupportedSyntax("shells do not agree on how many characters a file name there has")
        if matches(part, name):
            yield name


def _is_there(path: str, listing: DirectoryListing, *, last: bool) -> bool:
    """Return whether a path exists: anything as the last part, a folder before it. Links are not followed."""
    if path.endswith("/") or path in ("", "."):
        return True
    kind = listing.kind(path)
    if kind is NameKind.LINK and not last:
        raise UnsupportedSyntax("its wildcards follow a symbolic link")
    return kind is not None if last else kind is NameKind.FOLDER


def _check_name(name: str) -> None:
    if name.startswith("-"):
        raise UnsupportedSyntax(f"its wildcards match a file `{name}`, which would be read as an option")
    if not name.isprintable():
        raise UnsupportedSyntax("its wildcards match a file whose name has invisible characters")


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

    def to_text(self) -> str:
        """Return a text that a shell reads as this command line."""
        parts: list[str] = []
        for number, step in enumerate(self.steps):
            moves = step.redirections or ((),) * len(step.pipeline)
            commands = [
                " ".join([*map(shlex.quote, argv), *map(_format_redirection, moved)])
                for argv, moved in zip(step.pipeline, moves, strict=True)
            ]
            parts += [step.joiner.value] if number else []
            parts.append(" | ".join(commands))
        return " ".join(parts)

    def with_commands(self, commands: tuple[Argv, ...]) -> AnalysedCommand:
        """Return the same command line with its commands replaced in order."""
        rest = iter(commands)
        return AnalysedCommand(
            tuple(
                PipelineStep(step.joiner, tuple(next(rest) for _ in step.pipeline), step.redirections)
                for step in self.steps
            )
        )


def _format_redirection(move: Redirection) -> str:
    if move.target is not None:
        return f"{move.stream}>&{move.target}"
    return f"{move.stream}{'>' if move.stream else '<'}/dev/null"


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
