"""Skills that are new or were changed are off until the owner accepts them, also in a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

MANIFEST = "---\nname: tides\ndescription: Times of the tides.\n---\n\n# Tides\n\n{text}\n"


async def test_the_owner_reviews_a_project_skill_in_a_chat(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        place = stage.workspace / ".agents/skills/tides"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(MANIFEST.format(text="Read the \u202etable."))
        answers = await stage.ask(
            "/skills",
            "/skills diff tides",
            "/skills accept tides 0000",
            "/skills accept winds",
            "/skills accept tides",
            "/skills",
            "/skills diff tides",
            "/skills forget tides",
        )
        listed, shown, late, unknown, accepted, empty, same, wrong = [each.text for each in answers]
        assert "tides (new, project)" in listed
        assert "+Read the \\u{202e}table." in shown
        assert "The scan found bidi-override in SKILL.md, line 8." in shown
        assert "changed while it was reviewed" in late
        assert "There is no skill 'winds'" in unknown
        assert accepted.startswith("Accepted tides (")
        assert empty.startswith("No skill waits")
        assert same == "tides has the accepted content."
        assert wrong.startswith("Usage: /skills")
