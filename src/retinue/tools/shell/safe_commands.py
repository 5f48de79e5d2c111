"""Commands that need no approval: those that only read, and safe bins, which only filter standard input."""

from __future__ import annotations

import re

from msgspec.structs import replace

from retinue.tools.shell.allowlist import Argv, CommandRules, SafeBinSpec
from retinue.tools.shell.argument_spec import ANYTHING, COUNT, LIST, ArgumentSpec, any_operand, flags
from retinue.tools.shell.code_execution_flags import find_plain_sed_files


def _is_inside(operand: str) -> bool:
    """Return whether an operand is a path below the working folder, or a git revision."""
    return not operand.startswith(("/", "~")) and ".." not in operand.split("/")


def _is_file_inside(operand: str) -> bool:
    """Return whether an operand is a path below the working folder, and not `@FILE`, a file of arguments."""
    return _is_inside(operand) and not operand.startswith("@")


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
        operand=_is_file_inside,
        pattern=re.compile(r"-k[0-9.,bdfgiMhnRrV]+|-t[^\0]"),
    ),
}

_ENDS_OF_FILES = ArgumentSpec(
    flags("-q -v --quiet --silent --verbose"),
    (("-n", COUNT), ("-c", COUNT), ("--lines", COUNT), ("--bytes", COUNT)),
    operand=_is_file_inside,
    pattern=re.compile(r"[-][nc]?[+-]?[0-9]{1,12}"),
)
_DIGEST = ArgumentSpec(flags("-b -t --binary --text --tag -z --zero"), operand=_is_file_inside)
_SMALL = r"[0-9]{1,6}"
_GREP = ArgumentSpec(
    flags(
        "-i -v -n -c -l -L -o -q -s -w -x -h -H -r -E -F -G -P -a -I -b -z -T -y --ignore-case --invert-match --count"
    )
    | flags("--line-number --files-with-matches --files-without-match --only-matching --quiet --silent --no-messages")
    | flags("--word-regexp --line-regexp --no-filename --with-filename --recursive --extended-regexp --fixed-strings")
    | flags("--basic-regexp --perl-regexp --text --byte-offset --null --null-data --color --colour"),
    (
        *((name, _SMALL) for name in ("-A", "-B", "-C", "-m")),
        *((f"--{name}", _SMALL) for name in ("after-context", "before-context", "context", "max-count")),
        *((name, ANYTHING) for name in ("-e", "--regexp", "--include", "--exclude", "--exclude-dir")),
        *(("--color", "never|auto|always"), ("--colour", "never|auto|always")),
    ),
    operand=_is_file_inside,
    combines_flags=True,
    pattern=re.compile(rf"-[A-Za-z]*[ABCm]{_SMALL}|-[0-9]{{1,3}}"),
    min_operands=1,
    first_is_free=True,
    replaces_first=flags("-e --regexp"),
)
_RIPGREP = ArgumentSpec(
    flags(
        "-i -v -n -N -c -l -o -q -w -x -F -P -S -s -U -a -p -u -uu --ignore-case --smart-case --case-sensitive --count"
    )
    | flags("--files --files-with-matches --files-without-match --hidden --no-ignore --line-number --no-line-number")
    | flags("--only-matching --fixed-strings --word-regexp --multiline --json --stats --no-heading --heading --vimgrep")
    | flags("--column --no-filename --with-filename --trim --type-list --invert-match --text --pcre2"),
    (
        *((name, _SMALL) for name in ("-A", "-B", "-C", "-m", "--max-count", "--max-depth", "--context")),
        *(
            (name, ANYTHING)
            for name in ("-g", "--glob", "--iglob", "-t", "--type", "-T", "--type-not", "-e", "--regexp")
        ),
        *(("-r", ANYTHING), ("--replace", ANYTHING), ("--sort", "[a-z]+"), ("--color", "[a-z]+")),
    ),
    operand=_is_file_inside,
    combines_flags=True,
    pattern=re.compile(rf"-[ABCm]{_SMALL}|-t[a-z]+"),
    first_is_free=True,
    replaces_first=flags("-e --regexp --files --type-list"),
)
_JQ_FILTER = re.compile(r"\b(?:env|import|include|input_filename|modulemeta|get_search_list)\b|\$ENV|\$__")
_READERS: dict[str, ArgumentSpec] = {
    "cat": ArgumentSpec(
        flags("-n -b -s -A -E -T -v -e -t -u --number --show-all"), operand=_is_file_inside, combines_flags=True
    ),
    "tac": ArgumentSpec(flags("-b -r"), operand=_is_file_inside),
    "rev": ArgumentSpec(operand=_is_file_inside),
    "nl": ArgumentSpec(
        value_flags=(("-b", "[atn]"), ("-w", COUNT), ("-s", ANYTHING)),
        operand=_is_file_inside,
        pattern=re.compile(r"-b[atn]"),
    ),
    "head": _ENDS_OF_FILES,
    "tail": _ENDS_OF_FILES,
    "wc": ArgumentSpec(
        flags("-c -m -l -L -w --bytes --chars --lines --words --max-line-length"),
        operand=_is_file_inside,
    ),
    "cut": ArgumentSpec(
        flags("-s --only-delimited --complement"),
        (
            *((name, ANYTHING) for name in ("-d", "--delimiter", "--output-delimiter")),
            *((name, LIST) for name in ("-f", "-c", "-b", "--fields", "--characters", "--bytes")),
        ),
        operand=_is_file_inside,
        pattern=re.compile(r"-d.|-[fcb][0-9,-]+"),
    ),
    "uniq": ArgumentSpec(
        flags("-c -d -u -i -D --count --repeated --unique --ignore-case"),
        (("-f", COUNT), ("-s", COUNT), ("-w", COUNT)),
        operand=_is_file_inside,
        max_operands=1,
    ),
    "comm": ArgumentSpec(
        flags("-1 -2 -3 -i --total"), operand=_is_file_inside, combines_flags=True, min_operands=2, max_operands=2
    ),
    "paste": ArgumentSpec(
        flags("-s -z --serial"), (("-d", ANYTHING),), operand=_is_file_inside, pattern=re.compile("-s?d.+")
    ),
    "join": ArgumentSpec(
        flags("-i --header"),
        (*((name, COUNT) for name in ("-1", "-2", "-j", "-a", "-v")), ("-t", ANYTHING), ("-o", r"[0-9.,]+|auto")),
        operand=_is_file_inside,
        pattern=re.compile("-t."),
        max_operands=2,
    ),
    "column": ArgumentSpec(
        flags("-t -x"), (("-s", ANYTHING), ("-c", COUNT)), operand=_is_file_inside, pattern=re.compile("-t?s.")
    ),
    "fold": ArgumentSpec(flags("-s -b"), (("-w", COUNT),), operand=_is_file_inside, pattern=re.compile("-s?w?[0-9]+")),
    "fmt": ArgumentSpec(flags("-s -u"), (("-w", COUNT),), operand=_is_file_inside, pattern=re.compile("-w?[0-9]+")),
    "expand": ArgumentSpec(flags("-i"), (("-t", LIST),), operand=_is_file_inside),
    "od": ArgumentSpec(
        flags("-c -x -b -d -o -v"),
        (("-A", "[doxn]"), ("-t", "[a-z0-9]+"), ("-N", COUNT), ("-j", COUNT)),
        operand=_is_file_inside,
        pattern=re.compile(r"-A[doxn]|-t[a-z0-9]+|-[Nj][0-9]+"),
    ),
    "hexdump": ArgumentSpec(flags("-C -c -d -o -x -v -b"), (("-n", COUNT), ("-s", COUNT)), operand=_is_file_inside),
    "xxd": ArgumentSpec(
        flags("-p -b -u"), (("-l", COUNT), ("-s", COUNT), ("-c", COUNT)), operand=_is_file_inside, max_operands=1
    ),
    "strings": ArgumentSpec(flags("-a"), (("-n", COUNT),), operand=_is_file_inside, pattern=re.compile("-[0-9]+")),
    "base64": ArgumentSpec(
        flags("-d --decode -i"), (("-w", COUNT),), operand=_is_file_inside, pattern=re.compile("-w0")
    ),
    "stat": ArgumentSpec(
        flags("-t -f -L"),
        (("-c", ANYTHING), ("--format", ANYTHING), ("--printf", ANYTHING)),
        operand=_is_file_inside,
        min_operands=1,
    ),
    "file": ArgumentSpec(
        flags("-b -i -k --brief --mime --mime-type --mime-encoding"), operand=_is_file_inside, combines_flags=True
    ),
    "du": ArgumentSpec(
        flags("-s -h -a -c -k -m -b -x -0 -S --summarize --human-readable --all --total --apparent-size --bytes"),
        (("-d", _SMALL), ("--max-depth", _SMALL), ("--exclude", ANYTHING), ("-t", ANYTHING), ("--threshold", ANYTHING)),
        operand=_is_file_inside,
        combines_flags=True,
        pattern=re.compile("-[shackmbx]*d[0-9]{1,3}"),
    ),
    "tree": ArgumentSpec(
        flags("-a -d -f -s -h -p -D -C -n -i -F -J --dirsfirst --noreport --prune --du --gitignore"),
        (("-L", _SMALL), ("-I", ANYTHING), ("-P", ANYTHING)),
        operand=_is_file_inside,
    ),
    "diff": ArgumentSpec(
        flags(
            "-u -c -q -r -s -i -w -b -B -y -N -a -e -n -t --brief --recursive --unified --side-by-side --no-dereference"
        )
        | flags("--ignore-case --ignore-all-space --ignore-blank-lines --suppress-common-lines --new-file --color"),
        (("-U", COUNT), ("-W", COUNT), ("-x", ANYTHING), ("--exclude", ANYTHING), ("--color", "never|auto|always")),
        operand=_is_file_inside,
        combines_flags=True,
        pattern=re.compile("-[UC][0-9]+"),
        min_operands=2,
        max_operands=2,
    ),
    "cmp": ArgumentSpec(flags("-s -l -b"), operand=_is_file_inside, max_operands=2),
    "readlink": ArgumentSpec(flags("-f -e -m -n"), operand=_is_file_inside),
    "realpath": ArgumentSpec(flags("-e -m -s -q"), operand=_is_file_inside),
    "jq": ArgumentSpec(
        flags("-r -c -s -e -n -R -S -M -C -j -a --raw-output --compact-output --slurp --exit-status --null-input --tab")
        | flags("--raw-input --sort-keys --monochrome-output --join-output"),
        operand=_is_file_inside,
        combines_flags=True,
        min_operands=1,
        first_is_free=True,
    ),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "rg": _RIPGREP,
    **dict.fromkeys(
        ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum"), _DIGEST
    ),
}
_FIND_TESTS = flags(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -size -mtime -mmin -atime"
) | flags(
    "-amin -ctime -cmin -newer -maxdepth -mindepth -perm -user -group -links -inum -printf -regextype -lname -uid -gid"
)
_FIND_WORDS = flags(
    "-empty -print -print0 -ls -prune -not -a -o -and -or ( ) ! , -depth -xdev -mount -readable -writable"
) | flags("-executable -quit -daystart -true -false -nouser -nogroup")


def _find_objection(words: Argv) -> str | None:
    """Return why a `find` may do more than list names below the working folder."""
    rest = iter(words[1:] if words[:1] == ("-P",) else words)
    for word in rest:
        if word in _FIND_TESTS:
            value = next(rest, None)
            if value is None or (word == "-newer" and not _is_inside(value)):
                return f"the value of `{word}` is not expected"
        elif word.startswith("-") or word in _FIND_WORDS:
            if word not in _FIND_WORDS:
                return f"the expression `{word}` is not expected"
        elif not _is_file_inside(word):
            return f"the operand `{word}` is not expected"
    return None


def _sed_objection(words: Argv) -> str | None:
    files = find_plain_sed_files(words)
    if files is None:
        return "the script does more than substitute, print and delete"
    return next((f"the operand `{file}` is not expected" for file in files if not _is_file_inside(file)), None)


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
    elif name == "find":
        reason = _find_objection(argv[1:])
    elif name == "sed":
        reason = _sed_objection(argv[1:])
    elif name == "jq" and any(map(_JQ_FILTER.search, argv[1:])):
        reason = "the filter reads more than its input"
    elif name in _READ_ONLY:
        reason = _READ_ONLY[name].objection(argv[1:])
    elif name in _READERS:
        reason = _READERS[name].objection(argv[1:])
    else:
        return f"`{name}` is neither known to only read nor on the allowlist"
    return None if reason is None else f"in `{name}`, {reason}"


_RECURSIVE_FLAG = re.compile(r"-[a-zA-Z]*[rR][a-zA-Z]*|--recursive")


def reads_files(argv: Argv) -> bool:
    """Return whether a read-only command may read the content of the files that its operands name."""
    return argv[0] in _READERS or argv[0] in ("find", "sed", "sort")


def reads_recursively(argv: Argv) -> bool:
    """Return whether a read-only command reads everything below its operands."""
    if argv[0] in ("find", "rg", "du", "tree"):
        return True
    return argv[0] in ("grep", "egrep", "fgrep", "diff") and any(map(_RECURSIVE_FLAG.fullmatch, argv[1:]))


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
