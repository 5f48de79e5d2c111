"""A workspace folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.storage.files import Root


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with Root.open(tmp_path / "workspace", create=True) as opened:
        yield opened
