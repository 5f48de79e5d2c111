"""What a command line would start, read strictly: either exactly known or not analysable.

The lexer knows words of plain characters, `'…'`, `"…"` without expansions, and the operators `|`, `&&`, `||`, `;`. For
what it accepts, a shell and our own runner start the same programs with the same arguments. Everything else is for a
person to judge.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

from retinue.tools.harmless import Argv, harden, objection

MAX_CHARACTERS = 20_000
MAX_WORDS = 1_000
MAX_BYTES = 100_000
"""The longest text that can be handed to a shell in one argument, with room to spare."""


class Joiner(StrEnum):
    """When a pipeline runs, given how the one before it ended."""

    ALWAYS = ";"
    ON_SUCCESS = "&&"
    ON_FAILURE = "||"


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline and when it runs."""

    joiner: Joiner
    pipeline: tuple[Argv, ...]


@dataclass(frozen=True, slots=True)
class Analysed:
    """A command line of which every program and argument is known."""

    steps: tuple[Step, ...]

    @property
    def commands(self) -> tuple[Argv, ...]:
        return tuple(argv for step in self.steps for argv in step.pipeline)


@dataclass(frozen=True, slots=True)
class NotAnalysable:
    """A command line that only a shell can read; `because` completes "cannot be analysed: …"."""

    because: str


class _Unreadable(Exception):
    """The lexer met something it does not know."""


_RESERVED = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"}
    | {"function", "time", "coproc", "{", "}", "!", "[[", "]]"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PLAIN = frozenset("_@%+=:,./-^")
_MEANINGS = {
    "$": "`$` expands variables or commands",
    "`": "a backtick runs a command",
    "\\": "`\\` changes the meaning of the next character",
    "!": "`!` recalls history or negates",
    "&": "`&` starts something in the background",
    "<": "`<` redirects input",
    ">": "`>` redirects output",
    "(": "`(` starts a subshell",
    ")": "`)` ends a subshell",
    "{": "`{` expands to several words",
    "}": "`}` expands to several words",
    "*": "`*` expands to file names",
    "?": "`?` expands to file names",
    "[": "`[` expands to file names",
    "]": "`]` expands to file names",
    "~": "`~` expands to a home folder",
    "#": "`#` starts a comment",
    "\n": "a line break separates commands",
    "\r": "a carriage return separates commands",
}


def analyse(text: str) -> Analysed | NotAnalysable:
    """Read a command line; never guesses."""
    if len(text) > MAX_CHARACTERS:
        return NotAnalysable(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        steps = _parse(_lex(text))
    except _Unreadable as reason:
        return NotAnalysable(str(reason))
    return Analysed(steps) if steps else NotAnalysable("it is empty")


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class _Operator:
    text: str


def _lex(text: str) -> list[_Word | _Operator]:
    tokens: list[_Word | _Operator] = []
    position = 0
    while position < len(text):
        if text[position] in " \t":
            position += 1
        elif text[position] in ";|&":
            operator = (
                text[position : position + 2] if text[position : position + 2] in ("&&", "||") else text[position]
            )
            if operator == "&":
                raise _Unreadable(_MEANINGS["&"])
            tokens.append(_Operator(operator))
            position += len(operator)
        else:
            word, position = _lex_word(text, position)
            tokens.append(word)
        if len(tokens) > MAX_WORDS:
            raise _Unreadable(f"it has more than {MAX_WORDS:,} words")
    return tokens


def _lex_word(text: str, position: int) -> tuple[_Word, int]:
    pieces: list[str] = []
    quoted = False
    while position < len(text) and text[position] not in " \t;|&":
        character = text[position]
        if character in "'\"":
            end = text.find(character, position + 1)
            if end < 0:
                raise _Unreadable("a quote is not closed")
            pieces.append(_check_quoted(text[position + 1 : end], character))
            quoted = True
            position = end + 1
        else:
            _check_plain(character, "".join(pieces[-1:]))
            pieces.append(character)
            position += 1
    return _Word("".join(pieces), quoted), position


def _check_quoted(inner: str, quote: str) -> str:
    for character in inner:
        if quote == '"' and character in "$`\\!":
            raise _Unreadable(_MEANINGS[character])
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            raise _Unreadable(_meaning(character))
    return inner


def _check_plain(character: str, before: str) -> None:
    # a tilde is only expanded at the start of a word and after `:` or `=`
    if character == "~" and before and before[-1] not in ":=":
        return
    if character not in _PLAIN and not character.isalnum():
        raise _Unreadable(_meaning(character))


def _meaning(character: str) -> str:
    return _MEANINGS.get(character, f"it contains the character U+{ord(character):04X}")


def _parse(tokens: list[_Word | _Operator]) -> tuple[Step, ...]:
    steps: list[Step] = []
    joiner = Joiner.ALWAYS
    pipeline: list[Argv] = []
    argv: list[_Word] = []
    if tokens and tokens[-1] != _Operator(";"):
        tokens = [*tokens, _Operator(";")]
    for token in tokens:
        if isinstance(token, _Word):
            argv.append(token)
            continue
        if not argv:
            raise _Unreadable(f"a command is missing before `{token.text}`")
        pipeline.append(_check_command(argv))
        argv = []
        if token.text != "|":
            steps.append(Step(joiner, tuple(pipeline)))
            pipeline, joiner = [], Joiner(token.text)
    return tuple(steps)


def _check_command(words: list[_Word]) -> Argv:
    first = words[0]
    if not first.text:
        raise _Unreadable("a command has an empty name")
    if not first.quoted and first.text in _RESERVED:
        raise _Unreadable(f"`{first.text}` is a word of the shell's language")
    if _ASSIGNMENT.match(first.text):
        raise _Unreadable(f"`{first.text}` sets a variable")
    return tuple(word.text for word in words)


@dataclass(frozen=True, slots=True)
class Allow:
    """Every program is known to be harmless; `command` is what to run, without a shell."""

    command: Analysed


@dataclass(frozen=True, slots=True)
class Consult:
    """A person must be asked; `because` says why."""

    because: str


@dataclass(frozen=True, slots=True)
class Deny:
    """It cannot be run, whoever agrees."""

    because: str


Decision = Allow | Consult | Deny


def judge(text: str) -> Decision:
    """Whether a command line may run unasked, after asking, or not at all."""
    if not text.strip():
        return Deny("The command is empty.")
    if "\0" in text:
        return Deny("A command cannot contain a NUL character.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return Deny("The command is not valid Unicode text.")
    if size > MAX_BYTES:
        return Deny(f"The command is longer than {MAX_BYTES:,} bytes. Write it to a script file and run that.")
    return decide(analyse(text))


def decide(reading: Analysed | NotAnalysable) -> Allow | Consult:
    """Whether what was read is known to be harmless; what is allowed comes back ready to run."""
    match reading:
        case NotAnalysable(because):
            return Consult(f"it cannot be analysed: {because}")
        case Analysed(steps):
            for argv in reading.commands:
                reason = objection(argv)
                if reason is not None:
                    return Consult(reason)
            return Allow(Analysed(tuple(Step(step.joiner, tuple(map(harden, step.pipeline))) for step in steps)))


def show_exactly(text: str) -> str:
    """The text as a person must see it before agreeing: nothing hidden, nothing shortened.

    Line breaks stay; control, bidirectional, zero-width and unusual space characters become visible escapes.
    """
    return "".join(_show(character) for character in text)


_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}


def _show(character: str) -> str:
    if character == "\n" or (character.isprintable() and character not in _BLANK and character < "\U000e0000"):
        return character
    return f"⟨U+{ord(character):04X}⟩"
