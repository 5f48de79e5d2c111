"""Programs that run code from their arguments or input, and flags that make other programs do so.

In doubt an argument counts as code: an unnecessary question costs less than code that runs without approval.
"""

from __future__ import annotations

import posixpath
import re

from msgspec import Struct

from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.argument_spec import flags
from retinue.tools.shell.wrappers import ReviewRequired, program_name

_SED_FLAGS = frozenset(
    {"--quiet", "--silent", "--regexp-extended", "--posix", "--separate", "--unbuffered", "--null-data"}
)
_SED_SHORT_FLAGS = re.compile(r"-[nErsuz]+(e?)|-(e)")
_SED_BRACKETS = re.compile(r"\\.|\[\^?\]?[^]]*\]")

_SED_REGEX = r"/(?:\\.|[^/\\\n\[])*/"
_SED_LINE = rf"(?:[0-9]+|\$|[0-9]+~[0-9]+|{_SED_REGEX}I?)"
# possessive quantifiers: three adjacent runs of blanks would otherwise backtrack in cubic time
_SED_BLANKS = r"[ \t]*+"
_SED_ADDRESS = rf"(?:{_SED_LINE}(?:,(?:{_SED_LINE}|[+~][0-9]+))?)?{_SED_BLANKS}!?{_SED_BLANKS}"
_SED_PART = r"(?:\\.|(?!(?P=mark))[^\\\n])*"
_SED_SUBSTITUTION = rf"s(?P<mark>[/|,#@:%!+~_])(?P<what>{_SED_PART})(?P=mark){_SED_PART}(?P=mark)[gpiI0-9]*"
_SED_COMMAND = re.compile(rf"{_SED_BLANKS}{_SED_ADDRESS}(?:[pdqQ=hHgGxnNDPlz]|{_SED_SUBSTITUTION}){_SED_BLANKS}")


def is_plain_sed(words: Argv) -> bool:
    """Return whether the arguments of sed contain only scripts that print, delete and substitute.

    The sed language can also run commands and write files. A script in a file and editing in place are not plain.
    """
    return find_plain_sed_files(words) is not None


def find_plain_sed_files(words: Argv) -> tuple[str, ...] | None:
    """Return the files that a plain sed reads, or None if it is not plain."""
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        cluster = _SED_SHORT_FLAGS.fullmatch(word)
        if word == "--":
            operands += rest
        elif cluster is not None:
            scripts += [next(rest, "w")] if any(cluster.groups()) else []
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif not word.startswith("-") or word == "-":
            operands.append(word)
        elif word not in _SED_FLAGS:
            return None
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    return tuple(operands) if scripts and all(map(_is_plain_script, scripts)) else None


def _is_plain_script(script: str) -> bool:
    position = 0
    while True:
        found = _SED_COMMAND.match(script, position)
        if found is None:
            return not script[position:].strip()
        # inside brackets, some versions of sed read the delimiter as a character, others as the end
        if "[" in _SED_BRACKETS.sub("", found.group("what") or ""):
            return False
        position = found.end()
        if position == len(script):
            return True
        if script[position] not in ";\n":
            return False
        position += 1


_PRINTS_INFORMATION = flags("--version --help -V")


class _Interpreter(Struct, frozen=True):
    """A program that runs a script file. With a flag that is not listed, or without a file, it may run other code."""

    safe_flags: frozenset[str] = frozenset()
    value_flags: tuple[str, ...] = ()


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
_SAME_INTERPRETER = {"pypy": "python", "nodejs": "node", "luajit": "lua", "texlua": "lua"}
_VERSIONED = re.compile(r"(python|pypy|node|nodejs|perl|ruby|php|lua|luajit|tclsh)[0-9.]*[a-z]?(?:-.*)?")
_NO_FILE = re.compile(r"-|/dev/.*|/proc/.*")

_SHELLS = flags("sh bash dash zsh ksh ksh93 mksh fish csh tcsh ash rbash elvish nu xonsh pwsh powershell cmd wish osh")
_RUNS_CODE = (
    flags("awk gawk mawk nawk original-awk igawk osascript deno bun irb ghci runghc runhaskell ipython ipython3 jshell")
    | flags("guile sbcl clisp ecl racket scheme mzscheme scala groovy kotlin r octave matlab gnuplot maxima gp erl iex")
    | flags("elixir ocaml swift bpftrace stap dtrace m4 dc ed red ex vi vim view vimdiff rvim nvim emacs emacsclient")
    | flags("nano pico joe mg micro kak hx less more most pg lesspipe man info psql mysql mariadb sqlite3 sqlite mongo")
    | flags("mongosh redis-cli duckdb cqlsh ftp sftp lftp telnet nc ncat netcat socat mail mailx mutt w3m lynx elinks")
    | flags("coffee livescript raku rakudo forth gforth janet fennel clojure clj bb nbb lein swipl")
)


class _RiskyFlags(Struct, frozen=True):
    """Arguments that make an ordinary program run code, or read or write files that it otherwise would not.

    `letters` are one-letter flags, alone or combined with others. `long` are long flags, also in abbreviated form.
    `words` must match exactly. `pattern` is searched for in every word.
    """

    letters: str = ""
    long: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None

    def find(self, words: Argv) -> str | None:
        """Return the first risky word."""
        return next((word for word in words if self._is_risky(word)), None)

    def _is_risky(self, word: str) -> bool:
        if word in self.words or (self.pattern is not None and self.pattern.search(word)):
            return True
        if word.startswith("--"):
            name = word.partition("=")[0]
            return len(name) > 2 and any(flag.startswith(name) for flag in self.long)
        return word.startswith("-") and any(letter in word for letter in self.letters)


_COMPILER = _RiskyFlags(
    words=flags("-wrapper -specs -B"), pattern=re.compile(r"^(-fplugin|-specs=|-B.|@|--specs|-wrapper|-load)")
)
_CONTAINER = _RiskyFlags(long=("--kubeconfig",), words=flags("exec run build attach cp debug compose buildx"))
_PAGED = _RiskyFlags(long=("--pager",))
_TEX = _RiskyFlags(pattern=re.compile(r"^--?(shell-(escape|restricted)|enable-write18)"))
_VIDEO_LOADER = _RiskyFlags(
    long=(
        "--exec",
        "--exec-before-download",
        "--downloader",
        "--external-downloader",
        "--plugin-dirs",
        "--config-locations",
    )
)
_RUNS_OTHERS = _RiskyFlags(long=("--exec", "--exec-batch"), letters="xX")
_APT = _RiskyFlags(letters="o", long=("--option", "--config-file"), pattern=re.compile("^-c"))

_TAR = _RiskyFlags(
    "IF",
    (
        *("--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command", "--rmt-command"),
        *("--info-script", "--new-volume-script"),
    ),
)

_RESPONSE_FILE = _RiskyFlags(pattern=re.compile(r"^(-[a-z]+)?@."))
"""A word `@FILE` stands for the arguments in a file."""

_CURL = _RiskyFlags(
    long=(
        *("--config", "--engine", "--upload-file", "--netrc-file", "--cert", "--key", "--cacert", "--capath"),
        *("--cookie", "--cookie-jar", "--dump-header", "--trace", "--trace-ascii", "--stderr", "--libcurl"),
        *("--etag-save", "--etag-compare", "--hsts", "--alt-svc", "--unix-socket", "--abstract-unix-socket"),
        *("--output-dir", "--quote", "--crlfile", "--proxy-cert", "--proxy-key", "--proxy-cacert", "--variable"),
        *("--data-urlencode", "--url-query"),
    ),
    pattern=re.compile(
        # flags without a value and then one that names a file; `@FILE` as data, header or format; a form with a file
        r"^-[#0-9afgijklnpqsvBGIJLMNORSVZ:]*[KTEbcDQ]|^(-[a-zA-Z]|--[a-z-]+=)?@.|^[^:/?]*=[@<]"
        # a path on this machine as an address, also one that curl puts together from braces, and an output elsewhere
        r"|(?i:file:)|^[^/?]*[{\[][^/?]*:/|^(-o|--output=)?(/(?!dev/null$)|~|\.\./)|/\.\./"
    ),
)
_WGET_FILES = (
    *("--execute", "--use-askpass", "--config", "--post-file", "--body-file", "--input-file", "--load-cookies"),
    *("--save-cookies", "--ca-certificate", "--ca-directory", "--certificate", "--private-key", "--warc-file"),
)

_RISKY_FLAGS: dict[str, _RiskyFlags] = {
    "find": _RiskyFlags(
        words=flags("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    "fd": _RUNS_OTHERS,
    "fdfind": _RUNS_OTHERS,
    "sort": _RiskyFlags("oT", ("--output", "--compress-program", "--files0-from", "--temporary-directory")),
    "shuf": _RiskyFlags("o", ("--output",)),
    "tar": _TAR,
    "bsdtar": _TAR,
    "zip": _RiskyFlags(long=("--unzip-command",), pattern=re.compile("^-[A-Za-z]*T")),
    "rsync": _RiskyFlags("e", ("--rsh", "--rsync-path")),
    "scp": _RiskyFlags("SoFJ"),
    "jq": _RiskyFlags(
        "fL", ("--from-file", "--library-path"), pattern=re.compile(r"\benv\b|\bENV\b|\b(import|include)\b")
    ),
    "yq": _RiskyFlags("if", ("--from-file", "--inplace"), pattern=re.compile(r"env|load|system")),
    "curl": _CURL,
    "wget": _RiskyFlags("ei", _WGET_FILES),
    **dict.fromkeys(("http", "https", "xh", "xhs", "httpie"), _RiskyFlags(pattern=re.compile(r"@"))),
    "gh": _RiskyFlags(long=("--input",), words=flags("alias extension"), pattern=re.compile(r"=@")),
    **dict.fromkeys(("7z", "7za", "7zr", "javac", "rustc", "kotlinc", "ar", "nm", "objdump"), _RESPONSE_FILE),
    **dict.fromkeys(("objcopy", "strip", "ranlib", "readelf", "strings", "size", "addr2line", "as"), _RESPONSE_FILE),
    "make": _RiskyFlags(long=("--eval",), words=flags("-f- -"), pattern=re.compile(r"SHELL|^-E")),
    "npm": _RiskyFlags(long=("--script-shell", "--node-options", "--call"), words=flags("exec x -c")),
    "go": _RiskyFlags(pattern=re.compile(r"^--?(exec|toolexec|vettool|overlay)(=|$)")),
    "cargo": _RiskyFlags(long=("--config",)),
    "tcpdump": _RiskyFlags("z"),
    "nmap": _RiskyFlags(long=("--script", "--datadir")),
    "openssl": _RiskyFlags(words=flags("engine -engine -provider -provider-path -config")),
    "cpio": _RiskyFlags(long=("--rsh-command",)),
    "java": _RiskyFlags(pattern=re.compile(r"^(-XX:(On|Flags=|VMOptionsFile)|-javaagent|-agent|@)")),
    "pandoc": _RiskyFlags(
        "FLd",
        ("--filter", "--lua-filter", "--defaults", "--pdf-engine", "--pdf-engine-opt"),
        pattern=re.compile(r"\.lua$"),
    ),
    "exiftool": _RiskyFlags(pattern=re.compile(r"^-(if[0-9]*|config|p|@)$|\$\{")),
    "aria2c": _RiskyFlags(pattern=re.compile(r"^--(on-|conf-path)")),
    "helm": _RiskyFlags(long=("--post-renderer", "--kubeconfig")),
    "tshark": _RiskyFlags("X"),
    **dict.fromkeys(("yt-dlp", "youtube-dl"), _VIDEO_LOADER),
    **dict.fromkeys(("ack", "ag", "bat", "batcat", "delta"), _PAGED),
    **dict.fromkeys(("tex", "latex", "pdftex", "pdflatex", "xelatex", "lualatex", "luatex", "xetex"), _TEX),
    "ip": _RiskyFlags(words=flags("exec netns -batch -b")),
    "split": _RiskyFlags(long=("--filter",)),
    "patch": _RiskyFlags("e", ("--ed",)),
    "sdiff": _RiskyFlags(long=("--diff-program",)),
    "diff3": _RiskyFlags(long=("--diff-program",)),
    "install": _RiskyFlags(long=("--strip-program",)),
    "rg": _RiskyFlags(long=("--pre", "--hostname-bin")),
    "ssh-keygen": _RiskyFlags("DP"),
    "ssh-add": _RiskyFlags("s"),
    "docker": _CONTAINER,
    "podman": _CONTAINER,
    "nerdctl": _CONTAINER,
    "kubectl": _CONTAINER,
    "apt": _APT,
    "apt-get": _APT,
    "dpkg": _RiskyFlags(pattern=re.compile("invoke|^-D|--admindir|--root|--instdir")),
    "test": _RiskyFlags(words=flags("-v -R")),
    "[": _RiskyFlags(words=flags("-v -R")),
    "printf": _RiskyFlags("v"),
    **dict.fromkeys(("cc", "gcc", "g++", "c++", "clang", "clang++", "gfortran", "ld", "gold", "lld"), _COMPILER),
}

_GIT_GLOBAL = re.compile(r"-c.*|--(config-env|exec-path|git-dir|work-tree|namespace|super-prefix|attr-source).*")
_GIT_SUBCOMMANDS = (
    flags("bisect filter-branch difftool mergetool send-email web--browse instaweb daemon credential shell upload-pack")
    | flags("receive-pack upload-archive http-backend cvsserver p4 svn remote-ext remote-fd remote-http remote-https")
    | flags("for-each-repo hook maintenance gui citool gitk help")
)
_GIT_WORDS = _RiskyFlags(
    "O",
    (
        *("--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--ext-diff", "--textconv"),
        *("--template", "--config", "--config-env", "--show-signature", "--tool", "--filters"),
    ),
    flags("foreach"),
    re.compile(r"^(ext|fd)::|^remote-|^-x"),
)
_GIT_COPYING = flags("clone init submodule fetch pull ls-remote archive")
_GIT_COPIES = _RiskyFlags("cu")
_GIT_ASKS_CONFIG = flags("--get --get-all --get-regexp --get-urlmatch --list -l")


def find_code_execution(argv: Argv) -> ReviewRequired | None:
    """Return why a command can run code that the rules cannot see, or None for an ordinary program."""
    name, words = program_name(argv), argv[1:]
    if len(words) == 1 and words[0] in _PRINTS_INFORMATION:
        return None
    if name in _SHELLS:
        return ReviewRequired(f"`{name}` is a shell", inline_code=True)
    if name in _RUNS_CODE:
        return ReviewRequired(f"`{name}` can run code from its arguments or its input", inline_code=True)
    if name == "git":
        return _check_git(words)
    if name == "sed" and not is_plain_sed(words):
        return ReviewRequired("the script of `sed` does more than substitute, print and delete", inline_code=True)
    interpreter = _find_interpreter(name)
    if interpreter is not None:
        return _check_script(name, words, interpreter)
    return _find_risky_flag(name, words)


def is_interpreter(argv: Argv) -> bool:
    """Return whether a command's program is an interpreter that runs a script file."""
    return _find_interpreter(program_name(argv)) is not None


_BUILD_FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "just": ("justfile", "Justfile", ".justfile"),
    "rake": ("Rakefile", "rakefile"),
    "invoke": ("tasks.py",),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "ninja": ("build.ninja",),
    "ant": ("build.xml",),
    "mvn": ("pom.xml",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
}
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_MAKE_FILE_FLAG = re.compile(r"(?:-f|--file=|--makefile=)(.+)")
_MAKE_FOLDER_FLAG = re.compile(r"(?:-C|--directory=)(.+)")


def find_scripts(argv: Argv) -> tuple[str, ...]:
    """Return the files whose code a command runs, whether or not they exist.

    These are the script of an interpreter, a program given by its path, and the Makefile or the like of a build tool.
    """
    name = program_name(argv)
    if name in ("make", "gmake"):
        return _find_makefiles(argv[1:])
    interpreter = _find_interpreter(name)
    if interpreter is not None or name in _SHELLS:
        script = _find_operand(argv[1:], interpreter.value_flags if interpreter else ())
        return () if script is None else (script,)
    return (*(argv[:1] if "/" in argv[0] else ()), *_BUILD_FILES.get(name, ()))


def _find_operand(words: Argv, value_flags: tuple[str, ...]) -> str | None:
    rest = iter(words)
    for word in rest:
        if word in value_flags:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None


def _find_makefiles(words: Argv) -> tuple[str, ...]:
    folder, files = "", []
    for word, following in zip(words, (*words[1:], ""), strict=False):
        file, place = _MAKE_FILE_FLAG.fullmatch(word), _MAKE_FOLDER_FLAG.fullmatch(word)
        if file is not None or word in ("-f", "--file", "--makefile"):
            files.append(file.group(1) if file else following)
        elif place is not None or word in ("-C", "--directory"):
            folder = posixpath.join(folder, place.group(1) if place else following)
    return tuple(posixpath.join(folder, file) for file in files or _MAKEFILES)


def _find_interpreter(name: str) -> _Interpreter | None:
    versioned = _VERSIONED.fullmatch(name)
    family = versioned.group(1) if versioned is not None else name
    return _INTERPRETERS.get(_SAME_INTERPRETER.get(family, family))


def _check_script(name: str, words: Argv, interpreter: _Interpreter) -> ReviewRequired | None:
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            if _NO_FILE.fullmatch(word):
                break
            return None
        if word in interpreter.value_flags:
            next(rest, None)
        elif word not in interpreter.safe_flags:
            return ReviewRequired(f"`{name} {word}` may run code that is not in a file", inline_code=True)
    return ReviewRequired(f"`{name}` reads its program from its input", inline_code=True)


def _find_risky_flag(name: str, words: Argv) -> ReviewRequired | None:
    peril = _RISKY_FLAGS.get(name)
    if name in ("tar", "bsdtar") and words and not words[0].startswith("-"):
        words = (f"-{words[0]}", *words[1:])
    word = peril.find(words) if peril is not None else None
    return (
        None
        if word is None
        else ReviewRequired(f"`{name}` with `{word}` can run code or access other files", inline_code=True)
    )


def _check_git(words: Argv) -> ReviewRequired | None:
    position = 0
    while position < len(words) and words[position].startswith("-"):
        if _GIT_GLOBAL.fullmatch(words[position]):
            return ReviewRequired(f"`git {words[position]}` changes what git starts", inline_code=True)
        position += 2 if words[position] == "-C" else 1
    command, rest = words[position : position + 1], words[position + 1 :]
    if command and command[0] in _GIT_SUBCOMMANDS:
        return ReviewRequired(f"`git {command[0]}` starts other programs", inline_code=True)
    if command == ("config",) and not (rest and rest[0] in _GIT_ASKS_CONFIG):
        return ReviewRequired("`git config` changes what git starts", inline_code=True)
    word = _GIT_WORDS.find(rest) or (_GIT_COPIES.find(rest) if command and command[0] in _GIT_COPYING else None)
    return None if word is None else ReviewRequired(f"`git` with `{word}` can start other programs", inline_code=True)


_BUILTINS = (
    flags(". : source eval exec command builtin cd chdir pushd popd dirs export unset readonly declare typeset local")
    | flags("let set shift shopt enable alias unalias trap wait jobs fg bg disown suspend exit logout return break")
    | flags("continue read mapfile readarray getopts hash type times umask ulimit history fc bind complete compgen")
    | flags("compopt caller help newgrp login")
)


def find_shell_builtin(argv: Argv) -> ReviewRequired | None:
    """Return why only a shell can run a command, or None for a program."""
    return ReviewRequired(f"`{argv[0]}` is a shell builtin") if argv[0] in _BUILTINS else None
