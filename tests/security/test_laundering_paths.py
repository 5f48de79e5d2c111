"""No generated path from untrusted text to a sink works without a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.hijack.laundering import BY_MODEL, COMMANDS, READERS, SINKS, generate_paths, launder
from tests.security.hijack.scene import open_scene
from tests.security.hijack.suites import OFFICE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_no_path_reaches_a_sink_without_a_question(tmp_path: Path) -> None:
    paths = list(generate_paths(len(COMMANDS) + len(BY_MODEL)))
    assert {step for path in paths for step in path.steps} == {*COMMANDS, *BY_MODEL}
    assert {path.reader for path in paths} == set(READERS)
    assert {path.sink for path in paths} == set(SINKS)
    async with open_scene(tmp_path, OFFICE) as scene:
        taken = [(path, *await launder(scene, path, number)) for number, path in enumerate(paths)]
    assert [path for path, arrived, _ in taken if not arrived] == []
    assert [(path, effects) for path, _, effects in taken if effects] == []
