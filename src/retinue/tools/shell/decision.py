"""Decision on a command line: it runs without approval, needs approval, or is denied.

The unit of permission is a program with its arguments. A command line that cannot be analysed, and a program that could
run other code than its arguments show, needs a person's approval.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from retinue.tools.shell.allowlist import DEFAULT_SAFE_BINS, Argv, ArgvPattern, AskWhen, CommandRules, Security
from retinue.tools.shell.analysis import UNKNOWN_LOCATION, AnalysedCommand, CommandLocation, NotAnalysable, analyse
from retinue.tools.shell.code_execution_flags import find_code_execution, find_shell_builtin
from retinue.tools.shell.safe_commands import harden, read_only_objection, safe_bin_objection
from retinue.tools.shell.wrappers import ReviewRequired, unwrap

MAX_BYTES = 100_000
"""Linux limits one argument to 128 KiB, and the text is passed to a shell as one argument."""


class AllowReason(StrEnum):
    """Why a program may run without approval."""

    READ_ONLY = "is known to only read"
    SAFE_BIN = "only filters its input"
    PATTERN = "is on the allowlist"
    SKILL = "belongs to a skill"
    FULL = "may run because every command may"
    SANDBOXED = "it runs in the sandbox"


class Segment(Struct, frozen=True):
    """One program of a command line: its wrappers, the program itself last, and why it may run."""

    layers: tuple[Argv, ...]
    ground: AllowReason
    pattern: ArgvPattern | None = None

    @property
    def argv(self) -> Argv:
        return tuple(word for layer in self.layers for word in layer)

    @property
    def only_reads(self) -> bool:
        return self.ground in (AllowReason.READ_ONLY, AllowReason.SAFE_BIN)


class Allow(Struct, frozen=True):
    """The command may run without approval. `command` is None if only a shell can interpret the text."""

    segments: tuple[Argv, ...]
    because: str
    command: AnalysedCommand | None
    grounds: tuple[Segment, ...] = ()


class NeedsApproval(Struct, frozen=True):
    """A person must approve the command; `because` says why.

    `remember` are the patterns that "always" would store, if any. `listed` is true if the rules allow the command and
    approval is required all the same.
    """

    segments: tuple[Argv, ...]
    because: str
    command: AnalysedCommand | None = None
    remember: tuple[ArgvPattern, ...] = ()
    listed: bool = False
    grounds: tuple[Segment, ...] = ()


class Deny(Struct, frozen=True):
    """The command cannot run, not even with approval."""

    because: str
    segments: tuple[Argv, ...] = ()


CommandDecision = Allow | NeedsApproval | Deny


def decide_command_line(
    text: str, rules: CommandRules | None = None, location: CommandLocation = UNKNOWN_LOCATION
) -> CommandDecision:
    """Decide whether a command line may run under these rules in this location."""
    impossible = find_text_problem(text)
    return Deny(impossible) if impossible else decide_command(analyse(text, location), rules or CommandRules())


def find_text_problem(text: str) -> str | None:
    """Return why a text cannot be a command line at all, or None if it can."""
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


def decide_command(
    reading: AnalysedCommand | NotAnalysable, rules: CommandRules, *, sandboxed: bool = False
) -> CommandDecision:
    """Decide whether an analysed command may run; an allowed command is returned in its hardened form.

    A sandboxed command needs no approval unless every command does. A shell runs it as it is written: inside, the shell
    and the programs it starts are confined alike.
    """
    segments = reading.commands if isinstance(reading, AnalysedCommand) else ()
    if sandboxed and rules.security is not Security.DENY and rules.ask is not AskWhen.ALWAYS:
        return Allow(segments, AllowReason.SANDBOXED.value, None)
    findings = [_find_ground(argv, rules) for argv in segments]
    command = reading if isinstance(reading, AnalysedCommand) else None
    match rules.security:
        case Security.DENY:
            return Deny("Commands are disabled (`tools.exec.security` is `deny`).", segments)
        case Security.FULL:
            miss = next((found for found in findings if isinstance(found, _Miss) and found.inline_code), None)
            miss = miss if rules.strict_inline_eval and rules.ask is not AskWhen.OFF else None
            grounds = tuple(Segment((argv,), AllowReason.FULL) for argv in segments)
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
        return Allow(segments, _format_reasons(grounds), command, grounds)
    if miss is not None and rules.ask is AskWhen.OFF:
        return Deny(
            f"The command was not run: {miss.because}. Approval is disabled (`tools.exec.ask` is `off`).", segments
        )
    because = miss.because if miss is not None else "every command needs approval"
    remember = () if isinstance(reading, NotAnalysable) or miss is None else _patterns_to_remember(segments, findings)
    return NeedsApproval(
        segments, because, command, remember, listed=miss is None, grounds=grounds if miss is None else ()
    )


class _Miss(Struct, frozen=True):
    """Why no rule allows a program; `storable` is true if a person may allow exactly this command permanently."""

    because: str
    inline_code: bool = False
    storable: bool = False


def _find_ground(argv: Argv, rules: CommandRules) -> Segment | _Miss:
    layers = unwrap(argv)
    if isinstance(layers, ReviewRequired):
        return _Miss(layers.because)
    inner = layers[-1]
    complaint = read_only_objection(inner)
    if complaint is None and _follows_safe_bins(inner[0], rules):
        return Segment(layers, AllowReason.READ_ONLY)
    if inner[0] in rules.safe_bins:
        complaint = safe_bin_objection(inner, rules)
        if complaint is None and find_code_execution(inner) is None:
            return Segment(layers, AllowReason.SAFE_BIN)
    refused = find_shell_builtin(inner)
    code = find_code_execution(inner)
    if code is not None and not (code.inline_code and not rules.strict_inline_eval):
        refused = code
    if refused is not None:
        return _Miss(refused.because, refused.inline_code)
    pattern = _matching_pattern(argv, inner, rules)
    if pattern is not None:
        return Segment(layers, AllowReason.PATTERN, pattern)
    if inner[0] in rules.skill_bins:
        return Segment(layers, AllowReason.SKILL)
    storable = code is None and ("/" not in argv[0] or argv[0].startswith("/"))
    return _Miss(complaint or f"`{inner[0]}` is not allowed", storable=storable)


def _follows_safe_bins(name: str, rules: CommandRules) -> bool:
    """Return whether the rules have no own opinion on a program that reads: a profile, or its removal as a safe bin."""
    return name not in rules.safe_bin_profiles and (name not in DEFAULT_SAFE_BINS or name in rules.safe_bins)


def _matching_pattern(argv: Argv, inner: Argv, rules: CommandRules) -> ArgvPattern | None:
    """Return the pattern that allows a command. A pattern for the wrapped command counts only if it is exact."""
    whole = ArgvPattern.exactly(argv).words
    return next((pattern for pattern in rules.patterns if pattern.matches(inner) or pattern.words == whole), None)


def _hardened(segment: Segment) -> Argv:
    if segment.ground is not AllowReason.READ_ONLY:
        return segment.argv
    return tuple(word for layer in (*segment.layers[:-1], harden(segment.layers[-1])) for word in layer)


def _patterns_to_remember(segments: tuple[Argv, ...], findings: list[Segment | _Miss]) -> tuple[ArgvPattern, ...]:
    misses = [(argv, found) for argv, found in zip(segments, findings, strict=True) if isinstance(found, _Miss)]
    if not all(found.storable for _, found in misses):
        return ()
    return tuple(dict.fromkeys(ArgvPattern.exactly(argv) for argv, _ in misses))


def _format_reasons(grounds: tuple[Segment, ...]) -> str:
    reasons = dict.fromkeys(
        f"`{segment.layers[-1][0]}` {segment.ground.value}" + (f" as `{segment.pattern}`" if segment.pattern else "")
        for segment in grounds
    )
    return "; ".join(reasons) or AllowReason.FULL.value
