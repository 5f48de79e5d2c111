"""Commands that need no approval: those that only read, and safe bins, which only filter standard input."""

from __future__ import annotations

import re

from msgspec.structs import replace

from retinue.tools.shell.allowlist import Argv, CommandRules, SafeBinSpec
from retinue.tools.shell.argument_spec import ANYTHING, COUNT, LIST, ArgumentSpec, any_operand, flags


def _is_inside(operand: str) -> bool:
    """Return whether an operand is a path below the working folder, or a git revision."""
    return not operand.startswith(("/", "~")) and ".." not in operand.split("/")


def _is_date_format(operand: str) -> bool:
    return operand.startswith("+")


_NO_SIGNATURE = r"(?![^\0]*%G)[^\0]*"
"""A git format without `%G`, which would start the configured signature program."""

_READ_ONLY: dict[str, ArgumentSpec] = {
    "pwd": ArgumentSpec(flags("-L -P")),
    "whoami": ArgumentSpec(),
    "uname": ArgumentSpec(flags("-a -s -n -r -v -m -p -o"), combines_flags=True),
    "date": ArgumentSpec(
        flags("-u --utc -R --rfc-email -I -Iseconds -Iminutes -Idate"), operand=_is_date_format, max_operands=1
    ),
    "echo": ArgumentSpec(flags("-n -e -E"), operand=any_operand, pattern=re.compile(ANYTHING)),
    "true": ArgumentSpec(),
    "false": ArgumentSpec(),
    "nproc": ArgumentSpec(flags("--all")),
    "basename": ArgumentSpec(operand=any_operand, max_operands=2),
    "dirname": ArgumentSpec(operand=any_operand),
    "ls": ArgumentSpec(
        flags("-1 -a -A -l -h -s -S -t -r -R -d -F -p -i -n -g -G -o -c -u -x --all --almost-all --full-time --reverse")
        | flags("--recursive --human-readable --directory --size --group-directories-first"),
        (("--color", "never|auto|always"), ("--sort", "none|size|time|version|extension")),
        operand=_is_inside,
        combines_flags=True,
    ),
    "sort": ArgumentSpec(
        flags("-b -d -f -g -h -i -M -n -r -R -s -u -V --numeric-sort --reverse --unique --ignore-case --version-sort")
        | flags("--human-numeric-sort --general-numeric-sort --stable"),
        (("-k", r"[0-9.,bdfgiMhnRrV]+"), ("-t", r"[^\0]"), ("--key", r"[0-9.,bdfgiMhnRrV]+")),
        pattern=re.compile(r"-k[0-9.,bdfgiMhnRrV]+|-t[^\0]"),
    ),
}

_LOG_FLAGS = (
    flags("--oneline --stat --shortstat --numstat --summary --graph --all --decorate --no-decorate --merges")
    | flags("--no-merges --reverse --name-only --name-status --first-parent --abbrev-commit --date-order")
    | flags("--topo-order --follow -p -u -s")
)
_DIFF_FLAGS = (
    flags("--stat --shortstat --numstat --summary --name-only --name-status --cached --staged --check --raw")
    | flags("-p -u -w -b -M -C --no-color --patch --no-patch --word-diff --exit-code --quiet --minimal")
    | flags("--patience --histogram --no-renames")
)
_DATE_AND_AUTHOR = (
    ("--since", ANYTHING),
    ("--until", ANYTHING),
    ("--after", ANYTHING),
    ("--before", ANYTHING),
    ("--author", ANYTHING),
    ("--grep", ANYTHING),
)
_OUTPUT_FORMAT = (
    ("--format", _NO_SIGNATURE),
    ("--pretty", _NO_SIGNATURE),
    ("--date", r"[a-z0-9-]+"),
    ("--abbrev", "[0-9]+"),
)
_SHORT_COUNT = re.compile(r"-(n|U)?[0-9]{1,6}")

_GIT: dict[str, ArgumentSpec] = {
    "status": ArgumentSpec(
        flags("-s -b -v -uno -unormal -uall --short --branch --long --show-stash --ignored --porcelain --no-renames"),
        (("--porcelain", "v1|v2|1|2"), ("--untracked-files", "no|normal|all")),
        operand=_is_inside,
        combines_flags=True,
    ),
    "log": ArgumentSpec(
        _LOG_FLAGS | _DIFF_FLAGS,
        (
            *_DATE_AND_AUTHOR,
            *_OUTPUT_FORMAT,
            ("-n", COUNT),
            ("--max-count", COUNT),
            ("--skip", COUNT),
            ("--decorate", "short|full|no"),
        ),
        operand=_is_inside,
        pattern=_SHORT_COUNT,
    ),
    "diff": ArgumentSpec(
        _DIFF_FLAGS, (("--unified", COUNT), ("--diff-filter", "[A-Za-z]+")), _is_inside, pattern=_SHORT_COUNT
    ),
    "show": ArgumentSpec(
        _LOG_FLAGS | _DIFF_FLAGS, (*_OUTPUT_FORMAT, ("--unified", COUNT)), _is_inside, pattern=_SHORT_COUNT
    ),
    "rev-parse": ArgumentSpec(
        flags("--short --abbrev-ref --show-toplevel --is-inside-work-tree --verify --show-prefix"), operand=_is_inside
    ),
    "branch": ArgumentSpec(flags("--list -l -a -r -v -vv --all --remotes --show-current --no-color")),
}
_NO_SUBMODULES = ("--ignore-submodules=all",)
_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv", *_NO_SUBMODULES)
_EXTRA_FLAGS = {"log": _NO_PROGRAMS, "diff": _NO_PROGRAMS, "show": _NO_PROGRAMS, "status": _NO_SUBMODULES}
_TRANSPORTS = ("ext", "fd", "file", "ftp", "ftps", "git", "http", "https", "ssh")
"""Each is disabled by name: a partial clone fetches missing objects, and its configuration names the program for it."""


def read_only_objection(argv: Argv) -> str | None:
    """Return why a command is not known to only read, or None if it is."""
    name = argv[0]
    if name == "git":
        reason = _git_objection(argv[1:])
    elif name in _READ_ONLY:
        reason = _READ_ONLY[name].objection(argv[1:])
    else:
        return f"`{name}` is neither known to only read nor on the allowlist"
    return None if reason is None else f"in `{name}`, {reason}"


def _git_objection(words: Argv) -> str | None:
    if not words or words[0] not in _GIT:
        return "only status, log, diff, show, rev-parse and listing branches are known to only read"
    return _GIT[words[0]].objection(words[1:])


def harden(argv: Argv) -> Argv:
    """Return the same command with git options that disable every program a repository's configuration may name."""
    if argv[:1] != ("git",) or len(argv) < 2:
        return argv
    return ("git", *_GIT_SETTINGS, argv[1], *_EXTRA_FLAGS.get(argv[1], ()), *argv[2:])


_GIT_SETTINGS = (
    "--no-pager",
    "--no-optional-locks",
    *(
        word
        for setting in (
            *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.sshCommand=false"),
            *("gpg.program=false", "gpg.openpgp.program=false", "gpg.x509.program=false", "gpg.ssh.program=false"),
            *("log.showSignature=false", "safe.bareRepository=explicit", "status.submoduleSummary=false"),
            *("protocol.allow=never", *(f"protocol.{transport}.allow=never" for transport in _TRANSPORTS)),
        )
        for word in ("-c", setting)
    ),
)


GIT_VARIABLES = ("GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0")
"""Assignments that disable every transport. An alias `remote-NAME` of the repository could be the program of one."""


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
