"""Scenes for the tests of faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.scene import Scene
from tests.faults.server import RuleServer


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with RuleServer() as server:
        made = Scene(tmp_path, server)
        with made.ending_clients():
            yield made
