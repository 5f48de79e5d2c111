"""The environment of a command: its variables, and the absolute paths of its programs.

Variables come from an allowlist; a command never inherits all variables of this process. Programs are looked up once,
and never inside the workspace, where an agent could have written them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from retinue.core.approval import IN_COMMAND
from retinue.core.errors import ToolFailed
from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.analysis import AnalysedCommand
from retinue.tools.shell.decision import AllowReason, Segment
from retinue.tools.shell.safe_commands import GIT_VARIABLES
from retinue.tools.shell.wrappers import ReviewRequired, unwrap

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRUSTED_FOLDERS = ("/usr/bin", "/bin")

_INHERITED = frozenset({"TERM", "LANG", "TZ", "NO_COLOR", "COLUMNS", "LINES", "HOME", "USER", "LOGNAME", "TMPDIR"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DANGEROUS_NAMES = r"""
    LD_.* DYLD_.* GCONV_.* MALLOC_.* NSS_.* .*SAN_OPTIONS LOCALDOMAIN RES_OPTIONS HOSTALIASES
    BASH.* ENV ZDOTDIR SHELL SHELLOPTS IFS PS[0-9] PROMPT_COMMAND GLOBIGNORE HISTFILE INPUTRC
    HOME PWD OLDPWD _ TMPDIR TERMCAP TERMINFO.* TZDIR POSIXLY_CORRECT
    GIT_.* PYTHON.* PIP_.* UV_.* PIPX_.* NODE_.* NPM_CONFIG_.* YARN_.* BUN_.* DENO_.* ELECTRON_.*
    RUBY.* GEM_.* BUNDLE_.* PERL.* LUA_.* PHP.* COMPOSER_.* JULIA_.* R_.* DOTNET_.* CARGO_.* RUST.*
    JAVA_.* JDK_.* _JAVA_OPTIONS (MAVEN|GRADLE|SBT|ANT|CATALINA|JVM)_OPTS
    GO(FLAGS|ENV|SUMDB|ROOT|BIN|TOOLCHAIN|TOOLDIR|PRIVATE|INSECURE|NOSUMDB|NOSUMCHECK|EXPERIMENT)
    ERL_.* ELIXIR_.* OCAML.* TCL_.* PYTEST_.* COVERAGE_.* NIX_.* CONDA_.* POETRY_.* MATPLOTLIB.* MPLBACKEND IPYTHONDIR
    GCC_.* CC CXX LD AR CPP C(PP|XX)?FLAGS LDFLAGS MAKEFLAGS MAKEFILES GNUMAKEFLAGS MFLAGS CMAKE_.*
    TAR_OPTIONS GREP_OPTIONS XZ_OPT XZ_DEFAULTS GZIP BZIP2? ZIPOPT UNZIP RSYNC_.* FZF_.*
    SSH_.* SVN_SSH CVS_RSH SSL.* OPENSSL_.* CURL_.* WGETRC NETRC GNUPGHOME KRB5.* SUDO_.*
    DOCKER_.* KUBE.* ANSIBLE_.* TF_CLI_.* HELM_.* AWS_(CONFIG_FILE|SHARED_CREDENTIALS_FILE|ENDPOINT_URL.*)
    XDG_.* DBUS_.* SYSTEMD_.* GTK_.* QT_.* GIO_.* GST_.* XAUTHORITY DISPLAY WAYLAND_DISPLAY
    APT_CONFIG DPKG_.* BC_ENV_ARGS DC_ENV_ARGS GAWK_.* MAGICK_.* GDK_.* VK_(ICD|LAYER|DRIVER).* MAILRC MAILCAPS
    LESS.* MANOPT EXINIT (G?VIM|NVIM).* EMACS.* FCEDIT VISUAL PSQLRC PGSERVICEFILE PGSYSCONFDIR
    .*PROXY .*INDEX_URL .*_REGISTRY .*_CA_BUNDLE .*PATH .*PAGER .*EDITOR .*BROWSER
    RETINUE_.* OPENCLAW_.*
"""


def base_environment(inherited: Mapping[str, str], path_prepend: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that every command gets."""
    kept = {name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")}
    return {**kept, "PATH": ":".join((*path_prepend, PATH)), IN_COMMAND: "exec"}


@cache
def _dangerous_names() -> re.Pattern[str]:
    return re.compile("|".join(_DANGEROUS_NAMES.split()), re.IGNORECASE)


def is_settable_variable(name: str) -> bool:
    """Return whether a skill or a call may set a variable: it must not change what programs load, run or trust."""
    return _NAME.fullmatch(name) is not None and _dangerous_names().fullmatch(name) is None


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise `ToolFailed` for variables that change what programs load, run or connect to."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ToolFailed(f"'{name}' is not a valid environment variable.")
        if not is_settable_variable(name):
            raise ToolFailed(f"The variable {name} may not be set: it changes what programs load, run or connect to.")


class ProgramFolders(Struct, frozen=True):
    """Folders to search for programs; those that run without approval come from the system folders only."""

    workspace: Path
    prepended: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()

    def find(self, name: str, ground: AllowReason | None) -> str | None:
        """Return the absolute path of a program, or None if none may be used."""
        if "/" in name:
            return (
                self._usable(name)
                if name.startswith("/") and ground not in (AllowReason.READ_ONLY, AllowReason.SAFE_BIN)
                else None
            )
        for folder in self._folders(ground):
            path = Path(folder, name)
            if path.is_file() and os.access(path, os.X_OK):
                return self._usable(str(path))
        return None

    def _folders(self, ground: AllowReason | None) -> Sequence[str]:
        match ground:
            case AllowReason.READ_ONLY:
                return TRUSTED_FOLDERS
            case AllowReason.SAFE_BIN:
                return (*TRUSTED_FOLDERS, *self.trusted)
            case _:
                return (*self.prepended, *PATH.split(":"))

    def _usable(self, path: str) -> str | None:
        """Return the path unless it or its target is in the workspace, where an agent can write."""
        inside = self.workspace.resolve()
        real = Path(path).resolve()
        if real.is_relative_to(inside) or Path(path).is_relative_to(inside) or not real.is_file():
            return None
        return path if os.access(path, os.X_OK) else None


def locate_programs(
    command: AnalysedCommand, grounds: Sequence[Segment], folders: ProgramFolders
) -> AnalysedCommand | None:
    """Return the command with absolute paths of all programs, or None if one is not found.

    `grounds` says for each program why it may run; it is empty if a person approved the command.
    """
    found: list[Argv] = []
    for position, argv in enumerate(command.commands):
        located = _locate(argv, grounds[position].ground if grounds else None, folders)
        if located is None:
            return None
        found.append(located)
    return command.with_commands(tuple(found))


def _locate(argv: Argv, ground: AllowReason | None, folders: ProgramFolders) -> Argv | None:
    layers = unwrap(argv)
    layers = (argv,) if isinstance(layers, ReviewRequired) else layers
    # a rule names the wrapped program; the wrapper itself must come from the system folders
    around = AllowReason.READ_ONLY if ground in (AllowReason.PATTERN, AllowReason.SKILL) else ground
    words: list[str] = []
    for position, layer in enumerate(layers, 1):
        path = folders.find(layer[0], ground if position == len(layers) else around)
        if path is None:
            return None
        words += (path, *layer[1:])
    if ground is not AllowReason.READ_ONLY or layers[-1][0] != "git":
        return tuple(words)
    # variables, because settings of the repository override those of the command line for a transport of another name
    env = folders.find("env", ground)
    return None if env is None else (env, *GIT_VARIABLES, *words)
