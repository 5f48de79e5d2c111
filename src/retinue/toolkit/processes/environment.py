"""The variables a command gets: an allowlist, never what this process happens to have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from retinue.core.approval import IN_COMMAND
from retinue.core.errors import ToolFailed

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
_DANGEROUS = re.compile("|".join(_DANGEROUS_NAMES.split()), re.IGNORECASE)


def base_environment(inherited: Mapping[str, str], path_prepend: Sequence[str] = ()) -> dict[str, str]:
    """The variables every command gets."""
    kept = {name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")}
    return {**kept, "PATH": ":".join((*path_prepend, PATH)), IN_COMMAND: "exec"}


def is_settable_variable(name: str) -> bool:
    """Whether a skill or a call may set a variable: a proper name that changes nothing programs load, run or trust."""
    return _NAME.fullmatch(name) is not None and _DANGEROUS.fullmatch(name) is None


def check_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables that change what programs load, run or connect to."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ToolFailed(f"'{name}' cannot be an environment variable.")
        if not is_settable_variable(name):
            raise ToolFailed(f"The variable {name} may not be set: it changes what programs load, run or connect to.")
