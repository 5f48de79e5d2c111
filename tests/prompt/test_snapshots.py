"""The committed prompts are what the code makes."""

from __future__ import annotations

import pytest

from tests.prompt.scenarios import SCENARIOS
from tests.prompt.snapshots import FOLDER, render


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_prompt_is_the_committed_one(name: str) -> None:
    committed = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert render(SCENARIOS[name]) == committed, (
        "The prompt changed. If it should, run `make snapshots` and review the diff."
    )


def test_no_snapshot_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(SCENARIOS)
