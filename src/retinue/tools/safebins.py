"""Safe bins: programs that may always filter standard input, called in a way that can do nothing else."""

from __future__ import annotations

import re

from msgspec.structs import replace

from retinue.tools.allowlist import Argv, CommandRules, SafeBinProfile
from retinue.tools.usage import ANYTHING, COUNT, LIST, Usage, anything, flags

_ENDS = Usage(
    flags("-q -v"),
    (("-n", COUNT), ("-c", COUNT), ("--lines", COUNT), ("--bytes", COUNT)),
    pattern=re.compile(r"-[nc]?[0-9]{1,12}"),
)

_KNOWN: dict[str, Usage] = {
    "cut": Usage(
        flags("-s --only-delimited --complement"),
        (("-d", ANYTHING), ("-f", LIST), ("-c", LIST), ("-b", LIST), ("--delimiter", ANYTHING), ("--fields", LIST)),
        pattern=re.compile(r"-d.|-[fcb][0-9,-]+"),
    ),
    "head": _ENDS,
    "tail": _ENDS,
    "tr": Usage(flags("-d -s -c -C -t --delete --squeeze-repeats --complement"), operand=anything, most_operands=2),
    "uniq": Usage(
        flags("-c -d -u -i --count --repeated --unique --ignore-case"), (("-f", COUNT), ("-s", COUNT), ("-w", COUNT))
    ),
    "wc": Usage(flags("-c -m -l -L -w --bytes --chars --lines --words --max-line-length")),
}


def safe_objection(argv: Argv, rules: CommandRules) -> str | None:
    """Why a program is not called as a filter of standard input; None where it is. Only for names in `safe_bins`."""
    name, words = argv[0], argv[1:]
    known, profile = _KNOWN.get(name), rules.safe_bin_profiles.get(name)
    if known is None and profile is None:
        return f"`{name}` is a safe bin without a profile in `safeBinProfiles`, so it is not known how it may be called"
    usage = known if profile is None else _usage(profile, known)
    assert usage is not None
    reason = usage.objection(words)
    return None if reason is None else f"in `{name}`, {reason}"


def _usage(profile: SafeBinProfile, known: Usage | None) -> Usage:
    """What a profile allows; for a program that is known here, it adds to that or takes away from it."""
    base = known or Usage()
    denied = profile.denied_flags
    return replace(
        base,
        flags=(base.flags | profile.allowed_flags) - denied,
        valued=tuple(
            (flag, shape)
            for flag, shape in (*((flag, ANYTHING) for flag in profile.allowed_value_flags), *base.valued)
            if flag not in denied
        ),
        pattern=None if denied else base.pattern,
        operand=base.operand if known is not None and known.operand is anything else _is_no_path,
        least_operands=profile.min_positional,
        most_operands=profile.max_positional,
    )


def _is_no_path(operand: str) -> bool:
    """An operand that cannot be meant as a file elsewhere; `-` is standard input, which is what a filter reads."""
    return "/" not in operand and not operand.startswith(("~", ".", "-"))
