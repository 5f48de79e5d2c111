"""Minutes, decisions and action items."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def meetings(workspace: Workspace) -> Script:
    made = script("meeting-notes", "meetings.py", workspace)
    made.run("new", "Budget 2031", "--with", "Ada, Grace", "--day", "2030-05-14")
    for line in ("Decision: buy tea", "- [ ] Ada: sign (2030-05-20)", "- [x] Bob: pay", "Question: who pays?"):
        made.run("note", "budget", line)
    made.run("new", "Weekly", "--day", "2030-05-21")
    made.run("note", "weekly", "- [ ] Grace: call Ada")
    return made


def test_a_meeting_is_a_markdown_file(meetings: Script, workspace: Workspace) -> None:
    text = workspace.read("meetings/2030-05-14-budget-2031.md")
    assert text.startswith("# Budget 2031\n\nDate: 2030-05-14\nPresent: Ada, Grace\n")
    assert text.endswith("Question: who pays?\n")


def test_action_items_of_all_meetings(meetings: Script) -> None:
    items = meetings.json("actions", "--today", "2030-05-21")
    assert [(item["who"], item["what"], item["overdue"]) for item in items] == [
        ("Ada", "sign", True),
        ("Grace", "call Ada", False),
    ]
    assert [item["what"] for item in meetings.json("actions", "--who", "grace")] == ["call Ada"]
    assert [item["what"] for item in meetings.json("actions", "--overdue", "--today", "2030-05-20")] == []
    assert len(meetings.json("actions", "--all")) == 3


def test_an_item_is_closed_if_it_is_the_only_one(meetings: Script, workspace: Workspace) -> None:
    assert "2 open items" in meetings.fail("close", "ada")
    meetings.run("close", "sign")
    assert "- [x] Ada: sign (2030-05-20)" in workspace.read("meetings/2030-05-14-budget-2031.md")
    assert "0 open items" in meetings.fail("close", "sign")


def test_decisions_and_questions(meetings: Script) -> None:
    assert [found["decision"] for found in meetings.json("decisions")] == ["buy tea"]
    assert meetings.run("decisions", "--since", "2030-05-15") == "Nothing.\n"
    assert [found["question"] for found in meetings.json("questions")] == ["who pays?"]


def test_bad_input_is_refused(meetings: Script) -> None:
    assert "exists already" in meetings.fail("new", "budget 2031", "--day", "2030-05-14")
    assert "no meeting is called 'party'" in meetings.fail("note", "party", "x")
