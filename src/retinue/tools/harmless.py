"""The short list of commands that only read, with the arguments for which that is true.

A rule names every flag it knows; an unknown flag, an abbreviation of a long one, or a file operand where only standard
input is meant, is an objection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Argv = tuple[str, ...]


def _nothing(operand: str) -> bool:
    return False


def _anything(operand: str) -> bool:
    return True


def _inside(operand: str) -> bool:
    """A path below the working folder, or a revision."""
    return not operand.startswith(("/", "~")) and ".." not in operand.split("/")


def _time_format(operand: str) -> bool:
    return operand.startswith("+")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a harmless use of one command looks like.

    `flags` stand alone, `valued` take a value of the given shape in the next word or after `=`; `bundles` tells that
    one-letter flags may be written together; `pattern` allows spellings of its own, such as `-5`.
    """

    flags: frozenset[str] = frozenset()
    valued: tuple[tuple[str, str], ...] = ()
    operand: Callable[[str], bool] = _nothing
    bundles: bool = False
    pattern: re.Pattern[str] | None = None
    most_operands: int = 1_000

    def objection(self, words: Argv) -> str | None:
        """Why these arguments are not harmless; None where they are."""
        values = dict(self.valued)
        operands: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                operands += rest
            elif not word.startswith("-") or word == "-":
                operands.append(word)
            elif word in values:
                value = next(rest, None)
                if value is None or not re.fullmatch(values[word], value):
                    return f"the value of `{word}` is not expected"
            elif not self._knows(word, values):
                return f"the flag `{word}` is not expected"
        strange = [word for word in operands if not self.operand(word)] + operands[self.most_operands :]
        return f"the operand `{strange[0]}` is not expected" if strange else None

    def _knows(self, word: str, values: dict[str, str]) -> bool:
        if word in self.flags or (self.pattern is not None and self.pattern.fullmatch(word)):
            return True
        name, equals, value = word.partition("=")
        if equals and name.startswith("--") and name in values:
            return re.fullmatch(values[name], value) is not None
        return self.bundles and not word.startswith("--") and all(f"-{letter}" in self.flags for letter in word[1:])


def _flags(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COUNT = r"[+-]?[0-9]{1,12}"
_LIST = r"[0-9,-]+"
_ANY = r"[^\0]*"
_NO_SIGNATURE = r"(?!.*%G)[^\0]*"
"""A format of git's without the placeholders that make it start a signature checker."""

_SAFE: dict[str, Rule] = {
    "pwd": Rule(_flags("-L -P")),
    "whoami": Rule(),
    "uname": Rule(_flags("-a -s -n -r -v -m -p -o"), bundles=True),
    "date": Rule(
        _flags("-u --utc -R --rfc-email -I -Iseconds -Iminutes -Idate"), operand=_time_format, most_operands=1
    ),
    "echo": Rule(_flags("-n -e -E"), operand=_anything, pattern=re.compile(_ANY)),
    "true": Rule(),
    "false": Rule(),
    "nproc": Rule(_flags("--all")),
    "basename": Rule(operand=_anything, most_operands=2),
    "dirname": Rule(operand=_anything),
    "ls": Rule(
        _flags(
            "-1 -a -A -l -h -s -S -t -r -R -d -F -p -i -n -g -G -o -c -u -x --all --almost-all --full-time --reverse"
        )
        | _flags("--recursive --human-readable --directory --size --group-directories-first"),
        (("--color", "never|auto|always"), ("--sort", "none|size|time|version|extension")),
        operand=_inside,
        bundles=True,
    ),
    "wc": Rule(_flags("-c -m -l -L -w --bytes --chars --lines --words --max-line-length")),
    "head": Rule(
        _flags("-q -v"),
        (("-n", _COUNT), ("-c", _COUNT), ("--lines", _COUNT), ("--bytes", _COUNT)),
        pattern=re.compile(r"-[nc]?[0-9]{1,12}"),
    ),
    "tail": Rule(
        _flags("-q -v"),
        (("-n", _COUNT), ("-c", _COUNT), ("--lines", _COUNT), ("--bytes", _COUNT)),
        pattern=re.compile(r"-[nc]?[0-9]{1,12}"),
    ),
    "cut": Rule(
        _flags("-s --only-delimited --complement"),
        (("-d", _ANY), ("-f", _LIST), ("-c", _LIST), ("-b", _LIST), ("--delimiter", _ANY), ("--fields", _LIST)),
        pattern=re.compile(r"-d.|-[fcb][0-9,-]+"),
    ),
    "tr": Rule(_flags("-d -s -c -C -t --delete --squeeze-repeats --complement"), operand=_anything, most_operands=2),
    "uniq": Rule(
        _flags("-c -d -u -i --count --repeated --unique --ignore-case"),
        (("-f", _COUNT), ("-s", _COUNT), ("-w", _COUNT)),
    ),
    "sort": Rule(
        _flags("-b -d -f -g -h -i -M -n -r -R -s -u -V --numeric-sort --reverse --unique --ignore-case --version-sort")
        | _flags("--human-numeric-sort --general-numeric-sort --stable"),
        (("-k", r"[0-9.,bdfgiMhnRrV]+"), ("-t", r"[^\0]"), ("--key", r"[0-9.,bdfgiMhnRrV]+")),
        pattern=re.compile(r"-k[0-9.,bdfgiMhnRrV]+|-t[^\0]"),
    ),
}

_LOG_FLAGS = (
    _flags("--oneline --stat --shortstat --numstat --summary --graph --all --decorate --no-decorate --merges")
    | _flags("--no-merges --reverse --name-only --name-status --first-parent --abbrev-commit --date-order")
    | _flags("--topo-order --follow -p -u -s")
)
_DIFF_FLAGS = (
    _flags("--stat --shortstat --numstat --summary --name-only --name-status --cached --staged --check --raw")
    | _flags("-p -u -w -b -M -C --no-color --patch --no-patch --word-diff --exit-code --quiet --minimal")
    | _flags("--patience --histogram --no-renames")
)
_WHEN = (
    ("--since", _ANY),
    ("--until", _ANY),
    ("--after", _ANY),
    ("--before", _ANY),
    ("--author", _ANY),
    ("--grep", _ANY),
)
_SHAPE = (("--format", _NO_SIGNATURE), ("--pretty", _NO_SIGNATURE), ("--date", r"[a-z0-9-]+"), ("--abbrev", "[0-9]+"))
_SHORT_COUNT = re.compile(r"-(n|U)?[0-9]{1,6}")

_GIT: dict[str, Rule] = {
    "status": Rule(
        _flags("-s -b -v -uno -unormal -uall --short --branch --long --show-stash --ignored --porcelain --no-renames"),
        (("--porcelain", "v1|v2|1|2"), ("--untracked-files", "no|normal|all")),
        operand=_inside,
        bundles=True,
    ),
    "log": Rule(
        _LOG_FLAGS | _DIFF_FLAGS,
        (*_WHEN, *_SHAPE, ("-n", _COUNT), ("--max-count", _COUNT), ("--skip", _COUNT), ("--decorate", "short|full|no")),
        operand=_inside,
        pattern=_SHORT_COUNT,
    ),
    "diff": Rule(_DIFF_FLAGS, (("--unified", _COUNT), ("--diff-filter", "[A-Za-z]+")), _inside, pattern=_SHORT_COUNT),
    "show": Rule(_LOG_FLAGS | _DIFF_FLAGS, (*_SHAPE, ("--unified", _COUNT)), _inside, pattern=_SHORT_COUNT),
    "rev-parse": Rule(
        _flags("--short --abbrev-ref --show-toplevel --is-inside-work-tree --verify --show-prefix"), operand=_inside
    ),
    "branch": Rule(_flags("--list -l -a -r -v -vv --all --remotes --show-current --no-color")),
}
_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")
_DIFFING = frozenset({"log", "diff", "show"})


def objection(argv: Argv) -> str | None:
    """Why a command is not known to be harmless; None where it is."""
    name = argv[0]
    if name == "git":
        reason = _git_objection(argv[1:])
    elif name in _SAFE:
        reason = _SAFE[name].objection(argv[1:])
    else:
        return f"`{name}` is not on the list of commands that only read"
    return None if reason is None else f"in `{name}`, {reason}"


def _git_objection(words: Argv) -> str | None:
    if not words or words[0] not in _GIT:
        return "only status, log, diff, show, rev-parse and listing branches are known to be harmless"
    return _GIT[words[0]].objection(words[1:])


def harden(argv: Argv) -> Argv:
    """The same command, told to start none of the programs that a repository's settings may name."""
    if argv[:1] == ("git",) and len(argv) > 1 and argv[1] in _DIFFING:
        return (*argv[:2], *_NO_PROGRAMS, *argv[2:])
    return argv


def _git_settings(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    listed = list(settings)
    out = {"GIT_CONFIG_COUNT": str(len(listed))}
    for number, (name, value) in enumerate(listed):
        out |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return out


HARMLESS_ENVIRONMENT = {
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    **_git_settings(
        (
            ("core.fsmonitor", "false"),
            ("core.hooksPath", "/dev/null"),
            ("core.pager", "cat"),
            ("log.showSignature", "false"),
            ("safe.bareRepository", "explicit"),
            ("diff.ignoreSubmodules", "all"),
            ("status.submoduleSummary", "false"),
        )
    ),
}
"""Variables for commands that run unasked: a repository's own settings must not make git start anything."""
