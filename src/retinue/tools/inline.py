"""Programs that run code from their arguments or their input, and the flags that turn others into such programs.

Where in doubt it is code: whoever is asked too often loses a moment, whoever is not asked loses more.
"""

from __future__ import annotations

import re

from msgspec import Struct

from retinue.tools.allowlist import Argv
from retinue.tools.sed import is_plain_sed
from retinue.tools.usage import flags
from retinue.tools.wrappers import Refused, program_name

_INFORMS = flags("--version --help -V")


class _Interpreter(Struct, frozen=True):
    """A program that runs a script file; with any other flag than these, or without a file, it may run other code."""

    harmless: frozenset[str] = frozenset()
    valued: tuple[str, ...] = ()


_INTERPRETERS: dict[str, _Interpreter] = {
    "python": _Interpreter(flags("-I -E -s -S -B -O -OO -u -v -q -b -bb -P"), ("-X",)),
    "node": _Interpreter(flags("--no-warnings --trace-warnings --check -c --enable-source-maps")),
    "perl": _Interpreter(flags("-w -c -t -T -W")),
    "ruby": _Interpreter(flags("-w -c -W0 -W1 -W2")),
    "php": _Interpreter(flags("-l -n -f")),
    "lua": _Interpreter(flags("-W")),
    "rscript": _Interpreter(flags("--vanilla --no-save")),
    "julia": _Interpreter(flags("-q")),
    "tclsh": _Interpreter(),
    "ts-node": _Interpreter(),
    "tsx": _Interpreter(),
}
_KIN = {"pypy": "python", "nodejs": "node", "luajit": "lua", "texlua": "lua"}
_VERSIONED = re.compile(r"(python|pypy|node|nodejs|perl|ruby|php|lua|luajit|tclsh)[0-9.]*[a-z]?(?:-.*)?")
_NO_FILE = re.compile(r"-|/dev/.*|/proc/.*")

_SHELLS = flags("sh bash dash zsh ksh ksh93 mksh fish csh tcsh ash rbash elvish nu xonsh pwsh powershell cmd wish osh")
_ALWAYS = (
    flags("awk gawk mawk nawk original-awk igawk osascript deno bun irb ghci runghc runhaskell ipython ipython3 jshell")
    | flags("guile sbcl clisp ecl racket scheme mzscheme scala groovy kotlin r octave matlab gnuplot maxima gp erl iex")
    | flags("elixir ocaml swift bpftrace stap dtrace m4 dc ed red ex vi vim view vimdiff rvim nvim emacs emacsclient")
    | flags("nano pico joe mg micro kak hx less more most pg lesspipe man info psql mysql mariadb sqlite3 sqlite mongo")
    | flags("mongosh redis-cli duckdb cqlsh ftp sftp lftp telnet nc ncat netcat socat mail mailx mutt w3m lynx elinks")
    | flags("coffee livescript raku rakudo forth gforth janet fennel clojure clj bb nbb lein swipl")
)


class _Peril(Struct, frozen=True):
    """What makes an ordinary program run code, write elsewhere or read what it should not.

    `letters` are one-letter flags, alone or written together with others; `long` are long flags, also abbreviated;
    `words` stand for themselves; `pattern` is looked for in every word.
    """

    letters: str = ""
    long: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None

    def find(self, words: Argv) -> str | None:
        """The first word that means it."""
        return next((word for word in words if self._meant(word)), None)

    def _meant(self, word: str) -> bool:
        if word in self.words or (self.pattern is not None and self.pattern.search(word)):
            return True
        if word.startswith("--"):
            name = word.partition("=")[0]
            return len(name) > 2 and any(flag.startswith(name) for flag in self.long)
        return word.startswith("-") and any(letter in word for letter in self.letters)


_COMPILER = _Peril(
    words=flags("-wrapper -specs -B"), pattern=re.compile(r"^(-fplugin|-specs=|-B.|@|--specs|-wrapper|-load)")
)
_CONTAINER = _Peril(long=("--kubeconfig",), words=flags("exec run build attach cp debug compose buildx"))
_PAGED = _Peril(long=("--pager",))
_TEX = _Peril(pattern=re.compile(r"^--?(shell-(escape|restricted)|enable-write18)"))
_VIDEO_LOADER = _Peril(
    long=(
        "--exec",
        "--exec-before-download",
        "--downloader",
        "--external-downloader",
        "--plugin-dirs",
        "--config-locations",
    )
)
_RUNS_OTHERS = _Peril(long=("--exec", "--exec-batch"), letters="xX")
_APT = _Peril(letters="o", long=("--option", "--config-file"), pattern=re.compile("^-c"))

_TAR = _Peril(
    "IF",
    (
        *("--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command", "--rmt-command"),
        *("--info-script", "--new-volume-script"),
    ),
)

_PERILS: dict[str, _Peril] = {
    "find": _Peril(
        words=flags("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    "fd": _RUNS_OTHERS,
    "fdfind": _RUNS_OTHERS,
    "sort": _Peril("oT", ("--output", "--compress-program", "--files0-from", "--temporary-directory")),
    "shuf": _Peril("o", ("--output",)),
    "tar": _TAR,
    "bsdtar": _TAR,
    "zip": _Peril(long=("--unzip-command",), pattern=re.compile("^-[A-Za-z]*T")),
    "rsync": _Peril("e", ("--rsh", "--rsync-path")),
    "scp": _Peril("SoFJ"),
    "jq": _Peril("fL", ("--from-file", "--library-path"), pattern=re.compile(r"\benv\b|\bENV\b|\b(import|include)\b")),
    "yq": _Peril("if", ("--from-file", "--inplace"), pattern=re.compile(r"env|load|system")),
    "curl": _Peril("K", ("--config", "--engine")),
    "wget": _Peril("e", ("--execute", "--use-askpass", "--config")),
    "make": _Peril(long=("--eval",), words=flags("-f- -"), pattern=re.compile(r"SHELL|^-E")),
    "npm": _Peril(long=("--script-shell", "--node-options", "--call"), words=flags("exec x -c")),
    "go": _Peril(pattern=re.compile(r"^--?(exec|toolexec|vettool|overlay)(=|$)")),
    "cargo": _Peril(long=("--config",)),
    "tcpdump": _Peril("z"),
    "nmap": _Peril(long=("--script", "--datadir")),
    "openssl": _Peril(words=flags("-engine -provider -provider-path -config")),
    "cpio": _Peril(long=("--rsh-command",)),
    "java": _Peril(pattern=re.compile(r"^(-XX:(On|Flags=|VMOptionsFile)|-javaagent|-agent|@)")),
    "pandoc": _Peril(
        "FLd",
        ("--filter", "--lua-filter", "--defaults", "--pdf-engine", "--pdf-engine-opt"),
        pattern=re.compile(r"\.lua$"),
    ),
    "exiftool": _Peril(pattern=re.compile(r"^-(if[0-9]*|config|p|@)$|\$\{")),
    "aria2c": _Peril(pattern=re.compile(r"^--(on-|conf-path)")),
    "helm": _Peril(long=("--post-renderer", "--kubeconfig")),
    "tshark": _Peril("X"),
    **dict.fromkeys(("yt-dlp", "youtube-dl"), _VIDEO_LOADER),
    **dict.fromkeys(("ack", "ag", "bat", "batcat", "delta"), _PAGED),
    **dict.fromkeys(("tex", "latex", "pdftex", "pdflatex", "xelatex", "lualatex", "luatex", "xetex"), _TEX),
    "ip": _Peril(words=flags("exec netns -batch -b")),
    "split": _Peril(long=("--filter",)),
    "patch": _Peril("e", ("--ed",)),
    "sdiff": _Peril(long=("--diff-program",)),
    "diff3": _Peril(long=("--diff-program",)),
    "install": _Peril(long=("--strip-program",)),
    "rg": _Peril(long=("--pre", "--hostname-bin")),
    "ssh-keygen": _Peril("DP"),
    "ssh-add": _Peril("s"),
    "docker": _CONTAINER,
    "podman": _CONTAINER,
    "nerdctl": _CONTAINER,
    "kubectl": _CONTAINER,
    "apt": _APT,
    "apt-get": _APT,
    "dpkg": _Peril(pattern=re.compile("invoke|^-D|--admindir|--root|--instdir")),
    "test": _Peril(words=flags("-v -R")),
    "[": _Peril(words=flags("-v -R")),
    "printf": _Peril("v"),
    **dict.fromkeys(("cc", "gcc", "g++", "c++", "clang", "clang++", "gfortran", "ld", "gold", "lld"), _COMPILER),
}

_GIT_GLOBAL = re.compile(r"-c.*|--(config-env|exec-path|git-dir|work-tree|namespace|super-prefix|attr-source).*")
_GIT_SUBCOMMANDS = (
    flags("bisect filter-branch difftool mergetool send-email web--browse instaweb daemon credential shell upload-pack")
    | flags("receive-pack upload-archive http-backend cvsserver p4 svn remote-ext remote-fd remote-http remote-https")
    | flags("for-each-repo hook maintenance gui citool gitk help")
)
_GIT_WORDS = _Peril(
    "O",
    (
        *("--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--ext-diff", "--textconv"),
        *("--template", "--config", "--config-env", "--show-signature", "--tool", "--filters"),
    ),
    flags("foreach"),
    re.compile(r"^(ext|fd)::|^remote-|^-x"),
)
_GIT_COPYING = flags("clone init submodule fetch pull ls-remote archive")
_GIT_COPIES = _Peril("cu")
_GIT_ASKS_CONFIG = flags("--get --get-all --get-regexp --get-urlmatch --list -l")


def inline_code(argv: Argv) -> Refused | None:
    """Why a command always needs a person's eye; None for an ordinary program."""
    name, words = program_name(argv), argv[1:]
    if len(words) == 1 and words[0] in _INFORMS:
        return None
    if name in _SHELLS:
        return Refused(f"`{name}` is a shell", inline_code=True)
    if name in _ALWAYS:
        return Refused(f"`{name}` can run code from its arguments or its input", inline_code=True)
    if name == "git":
        return _git(words)
    if name == "sed" and not is_plain_sed(words):
        return Refused("the script of `sed` does more than substitute, print and delete", inline_code=True)
    interpreter = _find_interpreter(name)
    if interpreter is not None:
        return _script(name, words, interpreter)
    return _peril(name, words)


def runs_scripts(argv: Argv) -> bool:
    """Whether a command's program is one that runs the file after it."""
    return _find_interpreter(program_name(argv)) is not None


def script_of(argv: Argv) -> str | None:
    """The file whose code a command runs, as it is named: a script after its interpreter, or a program by its path."""
    name = program_name(argv)
    if name in _SHELLS or _find_interpreter(name) is not None:
        return next((word for word in argv[1:] if not word.startswith("-")), None)
    return argv[0] if "/" in argv[0] else None


def _find_interpreter(name: str) -> _Interpreter | None:
    versioned = _VERSIONED.fullmatch(name)
    family = versioned.group(1) if versioned is not None else name
    return _INTERPRETERS.get(_KIN.get(family, family))


def _script(name: str, words: Argv, interpreter: _Interpreter) -> Refused | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            if _NO_FILE.fullmatch(word):
                break
            return None
        if word in interpreter.valued:
            next(rest, None)
        elif word not in interpreter.harmless:
            return Refused(f"`{name} {word}` may run code that is not in a file", inline_code=True)
    return Refused(f"`{name}` reads its program from its input", inline_code=True)


def _peril(name: str, words: Argv) -> Refused | None:
    peril = _PERILS.get(name)
    if name in ("tar", "bsdtar") and words and not words[0].startswith("-"):
        words = (f"-{words[0]}", *words[1:])
    word = peril.find(words) if peril is not None else None
    return None if word is None else Refused(f"`{name}` with `{word}` can do more than it seems", inline_code=True)


def _git(words: Argv) -> Refused | None:
    position = 0
    while position < len(words) and words[position].startswith("-"):
        if _GIT_GLOBAL.fullmatch(words[position]):
            return Refused(f"`git {words[position]}` changes what git starts", inline_code=True)
        position += 2 if words[position] == "-C" else 1
    command, rest = words[position : position + 1], words[position + 1 :]
    if command and command[0] in _GIT_SUBCOMMANDS:
        return Refused(f"`git {command[0]}` starts other programs", inline_code=True)
    if command == ("config",) and not (rest and rest[0] in _GIT_ASKS_CONFIG):
        return Refused("`git config` changes what git starts", inline_code=True)
    word = _GIT_WORDS.find(rest) or (_GIT_COPIES.find(rest) if command and command[0] in _GIT_COPYING else None)
    return None if word is None else Refused(f"`git` with `{word}` can start other programs", inline_code=True)


_BUILTINS = (
    flags(". : source eval exec command builtin cd chdir pushd popd dirs export unset readonly declare typeset local")
    | flags("let set shift shopt enable alias unalias trap wait jobs fg bg disown suspend exit logout return break")
    | flags("continue read mapfile readarray getopts hash type times umask ulimit history fc bind complete compgen")
    | flags("compopt caller help newgrp login")
)


def shell_only(argv: Argv) -> Refused | None:
    """Why a command means something to a shell alone; None for a program."""
    return Refused(f"`{argv[0]}` is a command of the shell itself") if argv[0] in _BUILTINS else None
