"""Whether a command line may run: unasked, after asking, or not at all.

The unit of permission is a program with its arguments. A line that the lexer cannot read, and a program that could run
something else than it seems, is for a person to judge.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from retinue.tools.allowlist import Argv, ArgvPattern, AskWhen, CommandRules, Security
from retinue.tools.harmless import harden, objection
from retinue.tools.inline import inline_code, shell_only
from retinue.tools.safebins import safe_objection
from retinue.tools.syntax import NOWHERE, Analysed, NotAnalysable, Place, analyse
from retinue.tools.wrappers import Refused, unwrap

MAX_BYTES = 100_000
"""The longest text that can be handed to a shell in one argument, with room to spare."""


class Ground(StrEnum):
    """Why a program may run."""

    HARMLESS = "is known to only read"
    SAFE_BIN = "only filters its input"
    PATTERN = "is on the allowlist"
    SKILL = "belongs to a skill"
    FULL = "may run because everything may"


class Segment(Struct, frozen=True):
    """One program of a command line: the wrappers around it, itself last, and why it may run."""

    layers: tuple[Argv, ...]
    ground: Ground
    pattern: ArgvPattern | None = None

    @property
    def argv(self) -> Argv:
        return tuple(word for layer in self.layers for word in layer)


class Allow(Struct, frozen=True):
    """It may run unasked. `command` is read completely; where it is None, only a shell can read the text."""

    segments: tuple[Argv, ...]
    because: str
    command: Analysed | None
    grounds: tuple[Segment, ...] = ()


class Consult(Struct, frozen=True):
    """A person must be asked; `because` says why.

    `remember` are the patterns that "always" would store, none where nothing may be stored. `listed` tells that the
    rules would allow it, and a person is asked all the same.
    """

    segments: tuple[Argv, ...]
    because: str
    command: Analysed | None = None
    remember: tuple[ArgvPattern, ...] = ()
    listed: bool = False
    grounds: tuple[Segment, ...] = ()


class Deny(Struct, frozen=True):
    """It cannot be run, whoever agrees."""

    because: str
    segments: tuple[Argv, ...] = ()


Decision = Allow | Consult | Deny


def judge(text: str, rules: CommandRules | None = None, place: Place = NOWHERE) -> Decision:
    """Whether a command line may run under these rules, in this place."""
    impossible = refuse_text(text)
    return Deny(impossible) if impossible else decide(analyse(text, place), rules or CommandRules())


def refuse_text(text: str) -> str | None:
    """Why no shell and no rule could make anything of a text; None for what can be read."""
    if len(text) > MAX_BYTES:
        return f"The command is longer than {MAX_BYTES:,} bytes. Write it to a script file and run that."
    if not text.strip():
        return "The command is empty."
    if "\0" in text:
        return "A command cannot contain a NUL character."
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "The command is not valid Unicode text."
    if size > MAX_BYTES:
        return f"The command is longer than {MAX_BYTES:,} bytes. Write it to a script file and run that."
    return None


def decide(reading: Analysed | NotAnalysable, rules: CommandRules) -> Decision:
    """Whether what was read may run; what is allowed comes back ready to run."""
    segments = reading.commands if isinstance(reading, Analysed) else ()
    findings = [_find_ground(argv, rules) for argv in segments]
    command = reading if isinstance(reading, Analysed) else None
    match rules.security:
        case Security.DENY:
            return Deny("Commands are switched off (`tools.exec.security` is `deny`).", segments)
        case Security.FULL:
            miss = next((found for found in findings if isinstance(found, _Miss) and found.inline_code), None)
            miss = miss if rules.strict_inline_eval and rules.ask is not AskWhen.OFF else None
            grounds = tuple(Segment((argv,), Ground.FULL) for argv in segments)
        case Security.ALLOWLIST:
            miss = next((found for found in findings if isinstance(found, _Miss)), None)
            if isinstance(reading, NotAnalysable):
                miss = _Miss(f"it cannot be analysed: {reading.because}")
            grounds = tuple(found for found in findings if isinstance(found, Segment))
            if command is not None and miss is None:
                command = command.with_commands(tuple(map(_hardened, grounds)))
        case unknown:
            assert_never(unknown)
    if miss is None and rules.ask is not AskWhen.ALWAYS:
        return Allow(segments, _reasons(grounds), command, grounds)
    if miss is not None and rules.ask is AskWhen.OFF:
        return Deny(
            f"The command was not run, and nobody is asked (`tools.exec.ask` is `off`): {miss.because}.", segments
        )
    because = miss.because if miss is not None else "every command is asked about"
    remember = () if isinstance(reading, NotAnalysable) or miss is None else _to_remember(segments, findings)
    return Consult(segments, because, command, remember, listed=miss is None, grounds=grounds if miss is None else ())


class _Miss(Struct, frozen=True):
    """Why no rule allows a program; `storable` tells that a person could allow exactly this for ever."""

    because: str
    inline_code: bool = False
    storable: bool = False


def _find_ground(argv: Argv, rules: CommandRules) -> Segment | _Miss:
    layers = unwrap(argv)
    if isinstance(layers, Refused):
        return _Miss(layers.because)
    inner = layers[-1]
    complaint = objection(inner)
    if complaint is None:
        return Segment(layers, Ground.HARMLESS)
    if inner[0] in rules.safe_bins:
        complaint = safe_objection(inner, rules)
        if complaint is None and inline_code(inner) is None:
            return Segment(layers, Ground.SAFE_BIN)
    refused = shell_only(inner)
    code = inline_code(inner)
    if code is not None and not (code.inline_code and not rules.strict_inline_eval):
        refused = code
    if refused is not None:
        return _Miss(refused.because, refused.inline_code)
    pattern = _matching(argv, inner, rules)
    if pattern is not None:
        return Segment(layers, Ground.PATTERN, pattern)
    if inner[0] in rules.skill_bins:
        return Segment(layers, Ground.SKILL)
    storable = code is None and ("/" not in argv[0] or argv[0].startswith("/"))
    return _Miss(complaint or f"`{inner[0]}` is not allowed", storable=storable)


def _matching(argv: Argv, inner: Argv, rules: CommandRules) -> ArgvPattern | None:
    """The pattern that allows a command; one around a wrapper counts only where it leaves nothing open."""
    whole = ArgvPattern.exactly(argv)
    return next((pattern for pattern in rules.patterns if pattern.matches(inner) or pattern == whole), None)


def _hardened(segment: Segment) -> Argv:
    if segment.ground is not Ground.HARMLESS:
        return segment.argv
    return tuple(word for layer in (*segment.layers[:-1], harden(segment.layers[-1])) for word in layer)


def _to_remember(segments: tuple[Argv, ...], findings: list[Segment | _Miss]) -> tuple[ArgvPattern, ...]:
    misses = [(argv, found) for argv, found in zip(segments, findings, strict=True) if isinstance(found, _Miss)]
    if not all(found.storable for _, found in misses):
        return ()
    return tuple(dict.fromkeys(ArgvPattern.exactly(argv) for argv, _ in misses))


def _reasons(grounds: tuple[Segment, ...]) -> str:
    reasons = dict.fromkeys(
        f"`{segment.layers[-1][0]}` {segment.ground.value}" + (f" as `{segment.pattern}`" if segment.pattern else "")
        for segment in grounds
    )
    return "; ".join(reasons) or Ground.FULL.value


def show_exactly(text: str) -> str:
    """The text as a person must see it before agreeing: nothing hidden, nothing shortened.

    Line breaks stay; control, bidirectional, zero-width and unusual space characters become visible escapes.
    """
    return "".join(_show(character) for character in text)


def show_on_one_line(text: str) -> str:
    """The same for what must not pass for further lines of a question."""
    return show_exactly(text).replace("\n", _escape("\n"))


_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}


def _show(character: str) -> str:
    if character == "\n" or (character.isprintable() and character not in _BLANK and character < "\U000e0000"):
        return character
    return _escape(character)


def _escape(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
