"""A diary with a file a day."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def journal(workspace: Workspace) -> Script:
    return script("journal", "journal.py", workspace)


def test_entries_of_a_day_share_a_file(journal: Script, workspace: Workspace) -> None:
    journal.run("add", "Walked.\n\nSlept well.", "--day", "2030-05-14", "--time", "09:05", "--mood", 4)
    journal.run("add", "-", "--day", "2030-05-14", "--time", "21:30", stdin="Read a book.\n")
    assert workspace.read("journal/2030/2030-05-14.md") == (
        "# Tuesday, 2030-05-14\n\n## 09:05  (mood 4)\n\nWalked.\n\nSlept well.\n\n## 21:30\n\nRead a book.\n"
    )
    shown = journal.json("show", "--day", "2030-05-14")
    assert [(each["time"], each["mood"], each["text"]) for each in shown] == [
        ("09:05", 4, "Walked.\n\nSlept well."),
        ("21:30", None, "Read a book."),
    ]


def test_looking_back(journal: Script) -> None:
    for day, mood in (("2029-05-14", 2), ("2030-05-12", 3), ("2030-05-13", 4), ("2030-05-14", 5)):
        journal.run("add", f"On {day} by the River.", "--day", day, "--time", "12:00", "--mood", mood)
    assert [each["day"] for each in journal.json("on-this-day", "--day", "2030-05-14")] == ["2029-05-14"]
    assert len(journal.json("search", "river", "2030")) == 3
    assert [each["day"] for each in journal.json("show", "--from", "2030-05-01", "--to", "2030-05-13")] == [
        "2030-05-12",
        "2030-05-13",
    ]
    found = journal.json("stats", "--day", "2030-05-15")
    assert (found["entries"], found["streak"]) == (4, 3)
    assert found["mood by month"] == {"2029-05": 2.0, "2030-05": 4.0}
    assert journal.run("search", "desert") == "No entries.\n"


def test_bad_input_is_refused(journal: Script) -> None:
    assert "the entry is empty" in journal.fail("add", " ")
    assert "looks like the heading" in journal.fail("add", "## 12:34 noon")
    journal.misuse("add", "x", "--mood", 6)
    journal.misuse("show", "--day", "today")
