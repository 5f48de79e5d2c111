"""The variables a command gets: an allowlist, never what this process happens to have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from retinue.core.errors import ToolFailed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRUSTED_FOLDERS = ("/usr/bin", "/bin")

_INHERITED = frozenset({"TERM", "LANG", "TZ", "NO_COLOR", "COLUMNS", "LINES", "HOME", "USER", "LOGNAME", "TMPDIR"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DANGEROUS = re.compile(
    r"(?:LD_|DYLD_|GCONV_|MALLOC_|BASH|GIT_|PYTHON|PIP_|UV_|NODE_|NPM_CONFIG_|YARN_|RUBY|GEM_|BUNDLE_|PERL|JAVA_|JDK_|LUA_)"
    r".*|(?:CARGO_|RUSTC?|DOTNET_|PHP|SSH_|SSL_|CURL_|DOCKER_|KUBE|XDG_|LESS|RETINUE_|OPENCLAW_|TERMINFO).*"
    r"|.*PROXY|.*_INDEX_URL|.*_CA_BUNDLE|.*PATH|_JAVA_OPTIONS|GOFLAGS|GOENV|GOSUMDB|HOME|SHELL|SHELLOPTS|IFS|ENV|PS[0-9]"
    r"|PROMPT_COMMAND|EDITOR|VISUAL|.*PAGER|BROWSER|MAKEFLAGS|MAKEFILES|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|TMPDIR|TERMCAP",
    re.IGNORECASE,
)


def base_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables every command gets."""
    kept = {name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")}
    return {**kept, "PATH": PATH, "RETINUE_SHELL": "exec"}


def check_variables(variables: Mapping[str, str]) -> None:
    """Refuse variables that change what programs load, run or connect to."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ToolFailed(f"'{name}' cannot be an environment variable.")
        if _DANGEROUS.fullmatch(name):
            raise ToolFailed(f"The variable {name} may not be set: it changes what programs load, run or connect to.")
