"""The committed prompts are what a model receives in real turns of a gateway."""

from __future__ import annotations

import pytest

from tests.prompt.live_turns import TURNS, take_pages
from tests.prompt.snapshots import FOLDER


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_prompts_of_real_turns_are_the_committed_ones() -> None:
    pages = await take_pages()
    committed = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert set(committed) == set(TURNS)
    for name, page in pages.items():
        assert page == committed[name], (
            f"The prompt of {name} changed. If it should, run `make snapshots` and review the diff."
        )
