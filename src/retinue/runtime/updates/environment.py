"""The virtual environment of the program: a copy with another version, and the exchange of both in one step.

The new version is installed into a copy, so the environment in use is never half updated: until the exchange a killed
update leaves the old one, and after it the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import RetinueError, UsageError
from retinue.storage.backup.restore import exchange

INSTALL_SECONDS = 1_800
NAME = "retinue"
RECORD = "retinue-update.json"
"""In the environment that an update replaced: which versions, and the backup of the home before it."""


class UpdateFailed(RetinueError):
    """An update was not made; the program and the home are as before."""


class UpdateEnvironment(Struct, frozen=True):
    """The folder of a virtual environment, and those beside it."""

    prefix: Path

    @property
    def new(self) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.updating")

    @property
    def previous(self) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.previous")

    def python(self, folder: Path | None = None) -> Path:
        return (folder or self.prefix) / "bin" / "python"

    def discard(self) -> None:
        """Remove what an interrupted update left, unless it was complete but for keeping the previous version."""
        if (self.new / RECORD).is_file():
            self.keep_previous()
        shutil.rmtree(self.new, ignore_errors=True)

    def build(self, install: Sequence[str]) -> None:
        """Copy the environment and run `python -m pip install` with these arguments in the copy."""
        self.discard()
        try:
            ignored = shutil.ignore_patterns(RECORD)
            shutil.copytree(self.prefix, self.new, symlinks=True, copy_function=_link_or_copy, ignore=ignored)
            self._run_pip(["install", *install])
            for script in (self.new / "bin").iterdir():
                _rename_in_script(script, self.new, self.prefix)
        except BaseException:
            self.discard()
            raise

    def _run_pip(self, arguments: Sequence[str]) -> None:
        command = [str(self.python(self.new)), "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise UpdateFailed(f"The installation failed, and nothing was changed: {' '.join(lines[-3:])}")

    def switch(self) -> None:
        """Exchange the new environment with the one in use; a second call takes that back."""
        os.sync()
        exchange(self.new, self.prefix)

    def keep_previous(self) -> None:
        """Keep the environment that was replaced, for `switch_back`, instead of the one before it."""
        shutil.rmtree(self.previous, ignore_errors=True)
        self.new.rename(self.previous)

    def switch_back(self) -> None:
        """Put the previous environment back."""
        if not self.previous.is_dir():
            raise UsageError(f"There is no previous version: {self.previous} does not exist.")
        exchange(self.previous, self.prefix)


def _link_or_copy(source: str, target: str) -> None:
    """Link a file: installers replace files and do not change them."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _rename_in_script(script: Path, old: Path, new: Path) -> None:
    if script.is_symlink() or not script.is_file():
        return
    data = script.read_bytes()
    if str(old).encode() in data:
        mode = script.stat().st_mode
        script.unlink()  # It may be a link to a file of the environment in use.
        script.write_bytes(data.replace(str(old).encode(), str(new).encode()))
        script.chmod(mode)


def find_environment() -> UpdateEnvironment:
    """Return the environment of this program; raise `UsageError` if it cannot be updated this way."""
    from importlib.metadata import PackageNotFoundError, distribution
    from importlib.util import find_spec

    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise UsageError("Retinue runs without being installed. Update the files that it runs from.") from None
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        raise UsageError(f"Retinue is installed from source in {origin['url']}. Update it there, with `git pull`.")
    if sys.prefix == sys.base_prefix:
        raise UsageError(
            "Retinue is not in a virtual environment. Update it as it was installed: pip install -U retinue."
        )
    if find_spec("pip") is None:
        raise UsageError(
            "The environment has no pip. Update with the tool that made it, as in `uv tool upgrade retinue`."
        )
    if not os.access(Path(sys.prefix).parent, os.W_OK):
        raise UsageError(
            f"{Path(sys.prefix).parent} is not writable for this user, so the update cannot be prepared there."
        )
    return UpdateEnvironment(Path(sys.prefix))


def find_newer(wanted: str) -> str | None:
    """Ask pip which version would be installed; None if it is installed already."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet"]
    command += ["--no-deps", "--upgrade", "--report", "-", wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise UpdateFailed(f"pip cannot tell which versions exist: {' '.join(lines[-2:])}")
    report: dict[str, Any] = json.loads(done.stdout)
    found = [item["metadata"]["version"] for item in report["install"] if item["metadata"]["name"].lower() == NAME]
    return str(found[0]) if found else None
