"""A home with a configuration file, and homes where writing fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retinue.storage.home_paths import HomePaths

Write = Callable[[str | bytes], HomePaths]


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return HomePaths(folder)


@pytest.fixture
def write(home: HomePaths) -> Write:
    """Write the home's configuration file."""

    def put(text: str | bytes) -> HomePaths:
        home.config_file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return home

    return put


@pytest.fixture
def read_only_home(tmp_path: Path) -> Iterator[HomePaths]:
    """A home with a valid configuration on a file system that was mounted read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    home = HomePaths(folder)
    home.config_file.write_text("{ agents: { defaults: { bootstrapMaxChars: 7 } } }\n")
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    yield home
    subprocess.run(["umount", folder], check=True)
