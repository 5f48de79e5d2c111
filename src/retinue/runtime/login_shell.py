"""API keys of the user's login shell, for a process that was started without it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from retinue.core.errors import ConfigError
from retinue.providers.vendors import VENDORS
from retinue.security.secret_sources import run_for_secret

log = logging.getLogger(__name__)

KNOWN = frozenset(name for vendor in VENDORS for name in vendor.variables)
_MARK = "retinue-variables-follow"
_PASSED = frozenset({"HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "ZDOTDIR"})


def missing_keys(environment: Mapping[str, str], seconds: float) -> dict[str, str]:
    """Return the providers' keys that the login shell sets and the environment lacks; none if it fails or is slow."""
    shell = environment.get("SHELL") or "/bin/sh"
    if environment.keys() >= KNOWN or not Path(shell).is_absolute():
        return {}
    passed = {name: value for name, value in environment.items() if name in _PASSED}
    try:
        printed = run_for_secret((shell, "-l", "-c", f"printf '\\0{_MARK}\\0'; env -0"), passed, seconds)
    except ConfigError as error:
        log.warning("the login shell gave no keys: %s", error)
        return {}
    # Output of start-up files comes before the mark.
    pairs = (line.partition("=") for line in printed.rpartition(f"\0{_MARK}\0")[2].split("\0"))
    found = {name: value for name, _, value in pairs if name in KNOWN and name not in environment and value}
    if found:
        log.info("taken from the login shell: %s", ", ".join(sorted(found)))
    return found
