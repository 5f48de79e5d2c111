"""What the tests of bundled skills share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.skills.bundled.scripts import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Workspace(folder)
