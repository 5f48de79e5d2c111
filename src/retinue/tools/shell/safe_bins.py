"""Safe bins: programs that run without approval if their arguments only filter standard input."""

from __future__ import annotations

import re

from msgspec.structs import replace

from retinue.tools.shell.allowlist import Argv, CommandRules, SafeBinSpec
from retinue.tools.shell.argument_spec import ANYTHING, COUNT, LIST, ArgumentSpec, any_operand, flags

_ENDS = ArgumentSpec(
    flags("-q -v"),
    (("-n", COUNT), ("-c", COUNT), ("--lines", COUNT), ("--bytes", COUNT)),
    pattern=re.compile(r"-[nc]?[0-9]{1,12}"),
)

_BUILT_IN: dict[str, ArgumentSpec] = {
    "cut": ArgumentSpec(
        flags("-s --only-delimited --complement"),
        (("-d", ANYTHING), ("-f", LIST), ("-c", LIST), ("-b", LIST), ("--delimiter", ANYTHING), ("--fields", LIST)),
        pattern=re.compile(r"-d.|-[fcb][0-9,-]+"),
    ),
    "head": _ENDS,
    "tail": _ENDS,
    "tr": ArgumentSpec(
        flags("-d -s -c -C -t --delete --squeeze-repeats --complement"), operand=any_operand, max_operands=2
    ),
    "uniq": ArgumentSpec(
        flags("-c -d -u -i --count --repeated --unique --ignore-case"), (("-f", COUNT), ("-s", COUNT), ("-w", COUNT))
    ),
    "wc": ArgumentSpec(flags("-c -m -l -L -w --bytes --chars --lines --words --max-line-length")),
}


def safe_bin_objection(argv: Argv, rules: CommandRules) -> str | None:
    """Return why a safe bin is not called as a filter of standard input, or None if it is."""
    name, words = argv[0], argv[1:]
    known, profile = _BUILT_IN.get(name), rules.safe_bin_profiles.get(name)
    if known is None and profile is None:
        return f"`{name}` is a safe bin without a profile in `safeBinProfiles`, so its allowed arguments are not known"
    usage = known if profile is None else _apply_profile(profile, known)
    assert usage is not None
    reason = usage.objection(words)
    return None if reason is None else f"in `{name}`, {reason}"


def _apply_profile(profile: SafeBinSpec, known: ArgumentSpec | None) -> ArgumentSpec:
    """Return what a configured profile allows; for a built-in safe bin it adds to or removes from the built-in spec."""
    base = known or ArgumentSpec()
    denied = profile.denied_flags
    return replace(
        base,
        flags=(base.flags | profile.allowed_flags) - denied,
        value_flags=tuple(
            (flag, shape)
            for flag, shape in (*((flag, ANYTHING) for flag in profile.allowed_value_flags), *base.value_flags)
            if flag not in denied
        ),
        pattern=None if denied else base.pattern,
        operand=base.operand if known is not None and known.operand is any_operand else _is_not_a_path,
        min_operands=profile.min_positional,
        max_operands=profile.max_positional,
    )


def _is_not_a_path(operand: str) -> bool:
    """Return whether an operand cannot name a file elsewhere or an option."""
    return "/" not in operand and not operand.startswith(("~", ".", "-"))
