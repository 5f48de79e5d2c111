"""The profile files as a form: answers go to their lines, everything else stays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from retinue.storage.files import Root
from retinue.workspace.profile import (
    TEMPERS,
    ProfileAnswers,
    fill_facts,
    read_fact,
    read_temper,
    set_temper,
    write_profile,
)
from retinue.workspace.seeding import seed_workspace
from retinue.workspace.settings import WorkspaceSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    seed_workspace(path, WorkspaceSettings(), datetime(2026, 1, 1, tzinfo=UTC))
    return path


def test_answers_are_written_to_their_files_and_can_be_read_back(folder: Path) -> None:
    with Root.open(folder) as root:
        changed = write_profile(root, ProfileAnswers("Mira", "Basil", "plain", "Europe/Vienna"))
        assert changed == ("USER.md", "IDENTITY.md", "SOUL.md")
        assert not (folder / "BOOTSTRAP.md").exists()
        assert (read_fact(root, "USER.md", "Name"), read_fact(root, "USER.md", "Time zone")) == (
            "Mira",
            "Europe/Vienna",
        )
        assert read_fact(root, "IDENTITY.md", "Name") == "Basil"
        assert read_temper(root) == TEMPERS["plain"]
        assert write_profile(root, ProfileAnswers("Mira", "Basil", "plain", "Europe/Vienna")) == ()


def test_one_name_alone_leaves_the_first_conversation_to_come(folder: Path) -> None:
    with Root.open(folder) as root:
        assert write_profile(root, ProfileAnswers(user_name="Mira")) == ("USER.md",)
        assert read_fact(root, "IDENTITY.md", "Name") is None
    assert (folder / "BOOTSTRAP.md").exists()


def test_what_a_person_wrote_stays() -> None:
    text = "# Your user\n\n- **Name:** Old\n- **Pet:** Rex\n\nLikes tea.\n"
    assert fill_facts(text, {"Name": "New\nName"}) == text.replace("Old", "New Name")
    assert fill_facts("Free text.", {"Name": "Mira"}) == "Free text.\n- **Name:** Mira\n"


def test_a_new_temper_replaces_the_old_one_and_nothing_else() -> None:
    text = set_temper("# Who you are\n\nBe useful.\n", "in my own words")
    assert text == "# Who you are\n\nBe useful.\n\n## Temper\n\nin my own words\n"
    more = text + "\n## Limits\n\nNone.\n"
    assert set_temper(more, "Warm") == more.replace("in my own words", TEMPERS["warm"])
