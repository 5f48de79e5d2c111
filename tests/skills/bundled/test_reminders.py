"""Reminders with dates and repetitions."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

NOW = ("--now", "2030-05-14 19:00")


@pytest.fixture
def reminders(workspace: Workspace) -> Script:
    return script("reminders", "reminders.py", workspace)


def test_what_is_due_is_shown_and_done(reminders: Script) -> None:
    reminders.run("add", "Water", "--at", "2030-05-14 18:00")
    reminders.run("add", "Later", "--in", "1h30m", *NOW)
    assert [(each["text"], each["at"]) for each in reminders.json("list")] == [
        ("Water", "2030-05-14T18:00"),
        ("Later", "2030-05-14T20:30"),
    ]
    assert [each["text"] for each in reminders.json("due", *NOW)] == ["Water"]
    reminders.run("done", 1)
    assert reminders.run("due", *NOW) == "Nothing is due.\n"
    assert reminders.run("list") == "  2  Tue 2030-05-14 20:30  Later\n"


@pytest.mark.parametrize(
    ("every", "at", "following"),
    [
        ("day", "2030-05-12 09:00", "2030-05-15T09:00"),
        ("weekday", "2030-05-10 20:00", "2030-05-14T20:00"),
        ("week", "2030-05-14", "2030-05-21T09:00"),
        ("month", "2030-01-31 08:00", "2030-05-31T08:00"),
        ("year", "2028-02-29 08:00", "2031-02-28T08:00"),
    ],
)
def test_a_repeating_reminder_moves_to_its_next_time(reminders: Script, every: str, at: str, following: str) -> None:
    reminders.run("add", "Again", "--at", at, "--every", every)
    assert reminders.json("done", 1, *NOW)[0]["at"] == following


def test_a_snoozed_reminder_comes_later(reminders: Script) -> None:
    reminders.run("add", "Water", "--at", "2030-05-14")
    assert reminders.json("snooze", 1, "--for", "30m", *NOW)[0]["at"] == "2030-05-14T19:30"


def test_a_snoozed_reminder_repeats_at_its_own_time(reminders: Script) -> None:
    reminders.run("add", "Water", "--at", "2030-05-14 18:00", "--every", "day")
    reminders.run("snooze", 1, "--for", "30m", *NOW)
    reminders.run("snooze", 1, "--for", "2h", *NOW)
    assert reminders.json("done", 1, *NOW)[0]["at"] == "2030-05-15T18:00"


def test_bad_input_is_refused(reminders: Script, workspace: Workspace) -> None:
    assert "there is no reminder 7" in reminders.fail("done", 7)
    assert "2h" in reminders.misuse("add", "x", "--in", "soon")
    reminders.misuse("add", "x")
    workspace.write("reminders.json", "[{}]")
    assert "not a list of reminders" in reminders.fail("list")
