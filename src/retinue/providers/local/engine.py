"""The package that runs local models: whether it is installed, and the command that installs it."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec

ENGINE = "xllamacpp"
"""The library that runs local models; the extra `local` requires it."""


def has_engine() -> bool:
    """Return whether local models can run in this process."""
    return find_spec(ENGINE) is not None


def installer_command() -> list[str]:
    """Return the command that installs the package where this program runs, in the version that Retinue declares."""
    from importlib.metadata import requires

    listed = next((each for each in requires("retinue") or () if each.startswith(ENGINE)), ENGINE)
    requirement = listed.partition(";")[0].strip()
    uv = shutil.which("uv")
    if find_spec("pip") is None and uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, requirement]
    return [sys.executable, "-m", "pip", "install", requirement]
