"""Calendars in .ics files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def ics(workspace: Workspace) -> Script:
    return script("calendar", "ics.py", workspace)


def calendar(*events: str) -> str:
    """A calendar as other programs write it, from the lines of its events."""
    blocks = [f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events]
    return f"BEGIN:VCALENDAR\nVERSION:2.0\n{''.join(blocks)}END:VCALENDAR\n".replace("\n", "\r\n")


def starts(ics: Script, first: str, last: str) -> list[str]:
    return [event["start"] for event in ics.json("list", "--from", first, "--to", last)]


def test_an_event_is_listed_as_it_was_added(ics: Script) -> None:
    text = "Zahnarzt; Kontrolle, 2. Teil \\ mit Röntgen " + "ä" * 60
    place = ("--location", "Hauptstr. 3")
    ics.run("add", text, "--start", "2030-05-14 15:00", "--minutes", 45, *place, "--notes", "a\nb")
    (event,) = ics.json("list", "--from", "2030-05-14", "--days", 1)
    assert event["title"] == text
    assert (event["start"], event["end"]) == ("2030-05-14T15:00:00+02:00", "2030-05-14T15:45:00+02:00")
    assert (event["location"], event["notes"]) == ("Hauptstr. 3", "a\nb")


def test_the_file_obeys_the_format(ics: Script, workspace: Workspace) -> None:
    ics.run("add", "ü" * 100, "--start", "2030-05-14 15:00")
    data = (workspace.folder / "calendar.ics").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")
    assert max(len(line) for line in data.split(b"\r\n")) <= 75
    assert b"DTSTART:20300514T130000Z" in data
    data.decode()


def test_an_all_day_event_ends_on_its_last_day(ics: Script, workspace: Workspace) -> None:
    ics.run("add", "Holiday", "--start", "2030-05-20", "--end", "2030-05-24")
    assert "DTEND;VALUE=DATE:20300525" in workspace.read("calendar.ics")
    (event,) = ics.json("list", "--from", "2030-05-24", "--days", 1)
    assert (event["start"], event["end"], event["all_day"]) == ("2030-05-20", "2030-05-24", True)
    assert ics.json("list", "--from", "2030-05-25", "--days", 1) == []


def test_other_content_of_the_file_stays(ics: Script, workspace: Workspace) -> None:
    original = calendar("UID:1\nSUMMARY:Old\nDTSTART:20300514T080000Z\nX-FOREIGN:kept")
    workspace.write("calendar.ics", original)
    ics.run("add", "New", "--start", "2030-05-14 15:00")
    ics.run("remove", "20300514-new@retinue")
    assert (workspace.folder / "calendar.ics").read_bytes().decode() == original


def test_two_events_of_one_title_and_day_have_their_own_ids(ics: Script) -> None:
    ics.run("add", "Call", "--start", "2030-05-14 10:00")
    ics.run("add", "Call", "--start", "2030-05-14 16:00")
    ics.run("remove", "20300514-call@retinue")
    assert starts(ics, "2030-05-14", "2030-05-14") == ["2030-05-14T16:00:00+02:00"]


def test_an_event_at_the_same_time_is_reported(ics: Script) -> None:
    ics.run("add", "First", "--start", "2030-05-14 10:00")
    assert "at the same time" in ics.run_loudly("add", "Second", "--start", "2030-05-14 10:30")[1]
    assert ics.run_loudly("add", "Third", "--start", "2030-05-14 11:30")[1] == ""


def test_a_repeating_event_keeps_its_clock_when_the_clocks_change(ics: Script, workspace: Workspace) -> None:
    ics.run("add", "Run", "--start", "2030-03-25 07:00", "--repeat", "freq=weekly")
    assert "DTSTART;TZID=Europe/Zurich:20300325T070000" in workspace.read("calendar.ics")
    assert starts(ics, "2030-03-25", "2030-04-01") == ["2030-03-25T07:00:00+01:00", "2030-04-01T07:00:00+02:00"]


RULES = [
    "FREQ=DAILY",
    "FREQ=DAILY;INTERVAL=3;COUNT=7",
    "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR",
    "FREQ=DAILY;UNTIL=20300620T070000Z",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,TU;WKST=SU",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,TU;WKST=MO",
    "FREQ=WEEKLY;COUNT=5;BYMONTH=6,7",
    "FREQ=MONTHLY",
    "FREQ=MONTHLY;BYMONTHDAY=31",
    "FREQ=MONTHLY;BYMONTHDAY=-1,15",
    "FREQ=MONTHLY;BYDAY=-1FR",
    "FREQ=MONTHLY;BYDAY=2TU,4TU;COUNT=9",
    "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY;INTERVAL=5;BYDAY=MO;BYSETPOS=1,2",
    "FREQ=YEARLY",
    "FREQ=YEARLY;INTERVAL=2",
    "FREQ=YEARLY;BYMONTHDAY=13,-1",
    "FREQ=DAILY;INTERVAL=3;BYMONTHDAY=-1,-2",
    "FREQ=YEARLY;BYMONTH=3,11;BYMONTHDAY=1,-1",
    "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
]


def test_repetitions_agree_with_another_implementation(ics: Script, workspace: Workspace) -> None:
    rrule: Any = pytest.importorskip("dateutil.rrule")
    begin, end = datetime(2030, 5, 1, 7, tzinfo=UTC), datetime(2034, 6, 1, tzinfo=UTC)
    expected: dict[str, list[str]] = {}
    events = []
    for rule in RULES:
        first = rrule.rrulestr(rule, dtstart=begin).after(begin, inc=True)
        days = rrule.rrulestr(rule, dtstart=first).between(first, end, inc=True)
        expected[rule] = [day.isoformat() for day in days]
        title = rule.replace(";", "\\;").replace(",", "\\,")
        events.append(f"UID:{rule}\nSUMMARY:{title}\nDTSTART:{first:%Y%m%dT%H%M%SZ}\nRRULE:{rule}")
    workspace.write("calendar.ics", calendar(*events))
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
    for event in ics.json("list", "--from", "2030-05-01", "--to", "2034-05-31", "--tz", "UTC"):
        found[event["title"]].append(event["start"])
    assert found == expected


def test_a_leap_day_birthday_comes_only_in_leap_years(ics: Script) -> None:
    ics.run("add", "Birthday", "--start", "2028-02-29", "--repeat", "FREQ=YEARLY")
    assert starts(ics, "2028-01-01", "2037-01-01") == ["2028-02-29", "2032-02-29", "2036-02-29"]


def test_exceptions_replacements_and_cancellations_count(ics: Script, workspace: Workspace) -> None:
    zone = "TZID=Europe/Zurich"
    workspace.write(
        "calendar.ics",
        calendar(
            f"UID:1\nSUMMARY:Meeting\nDTSTART;{zone}:20300506T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=5\n"
            f"EXDATE;{zone}:20300513T090000",
            "UID:1\nSUMMARY:Meeting (moved)\nRECURRENCE-ID:20300520T070000Z\n"
            f"DTSTART;{zone}:20300521T140000\nDURATION:PT1H",
            f"UID:1\nSUMMARY:Meeting\nSTATUS:CANCELLED\nRECURRENCE-ID;{zone}:20300527T090000\n"
            f"DTSTART;{zone}:20300527T090000",
        ),
    )
    assert starts(ics, "2030-05-01", "2030-06-30") == [
        "2030-05-06T09:00:00+02:00",
        "2030-05-21T14:00:00+02:00",
        "2030-06-03T09:00:00+02:00",
    ]


def test_folded_lines_quoted_parameters_and_alarms_are_understood(ics: Script, workspace: Workspace) -> None:
    workspace.write(
        "calendar.ics",
        calendar(
            'UID:1\nSUMMARY;LANGUAGE=en;X-NOTE="a:b;c":Long\n  title\nDTSTART;TZID="Europe/Zurich":20300514T090000\n'
            "DTEND;TZID=Europe/Zurich:20300514T093000\nBEGIN:VALARM\nTRIGGER:-PT5M\nSUMMARY:Alarm\nEND:VALARM\n"
            "LOCATION:Room 1\\, floor 2"
        ),
    )
    (event,) = ics.json("list", "--from", "2030-05-14", "--days", 1)
    assert (event["title"], event["location"]) == ("Long title", "Room 1, floor 2")


def test_an_event_over_midnight_belongs_to_both_days(ics: Script) -> None:
    ics.run("add", "Party", "--start", "2030-05-14 22:00", "--end", "2030-05-15 02:00")
    assert len(starts(ics, "2030-05-15", "2030-05-15")) == 1
    assert starts(ics, "2030-05-16", "2030-05-16") == []


def test_one_broken_event_does_not_hide_the_others(ics: Script, workspace: Workspace) -> None:
    good = "UID:2\nSUMMARY:Good\nDTSTART:20300514T080000Z"
    hourly = "UID:3\nSUMMARY:Hourly\nDTSTART:20300514T090000Z\nRRULE:FREQ=HOURLY"
    zone = "UID:4\nSUMMARY:Odd zone\nDTSTART;TZID=Nowhere/City:20300514T120000"
    workspace.write("calendar.ics", calendar("UID:1\nSUMMARY:Bad\nDTSTART:tomorrow", good, hourly, zone))
    printed, warned = ics.run_loudly("list", "--from", "2030-05-14", "--days", 2)
    assert [line.split("  ")[2] for line in printed.splitlines()] == ["Good", "Hourly", "Odd zone"]
    assert "skipped an event: cannot read the time 'tomorrow'" in warned
    assert "only the first 'Hourly' is shown" in warned
    assert "Nowhere/City" in warned


def test_free_time_lies_between_events(ics: Script, workspace: Workspace) -> None:
    workspace.write(
        "calendar.ics",
        calendar(
            "UID:1\nSUMMARY:A\nDTSTART:20300514T080000Z\nDTEND:20300514T090000Z",
            "UID:2\nSUMMARY:B\nDTSTART:20300514T083000Z\nDTEND:20300514T093000Z",
            "UID:3\nSUMMARY:Lunch?\nTRANSP:TRANSPARENT\nDTSTART:20300514T100000Z\nDTEND:20300514T110000Z",
            "UID:4\nSUMMARY:C\nDTSTART:20300514T123000Z\nDTEND:20300514T124500Z",
            "UID:5\nSUMMARY:Fair\nDTSTART;VALUE=DATE:20300514",
        ),
    )
    slots = ics.json("free", "--from", "2030-05-14", "--days", 1, "--between", "09:00-15:00", "--minutes", 30)
    assert [(slot["start"][11:16], slot["end"][11:16]) for slot in slots] == [("09:00", "10:00"), ("11:30", "14:30")]


def test_several_calendars_are_looked_at_together(ics: Script, workspace: Workspace) -> None:
    workspace.write("a.ics", calendar("UID:1\nSUMMARY:A\nDTSTART:20300514T080000Z"))
    workspace.write("b.ics", calendar("UID:2\nSUMMARY:B\nDTSTART:20300514T070000Z"))
    files = ("--file", "a.ics", "--file", "b.ics")
    found = ics.json("list", "--from", "2030-05-14", *files)
    assert [event["title"] for event in found] == ["B", "A"]
    assert "name one --file" in ics.fail("add", "X", "--start", "2030-05-14", *files)


def test_text_is_found_in_title_place_and_notes(ics: Script) -> None:
    ics.run("add", "Dentist", "--start", "2030-05-14 15:00", "--location", "Bern")
    ics.run("add", "Lunch", "--start", "2030-05-14 12:00")
    assert [event["title"] for event in ics.json("list", "--from", "2030-05-14", "--match", "BERN")] == ["Dentist"]


def test_a_zone_can_be_chosen(ics: Script) -> None:
    ics.run("add", "Call", "--start", "2030-05-14 15:00", "--tz", "America/New_York")
    assert starts(ics, "2030-05-14", "2030-05-14") == ["2030-05-14T21:00:00+02:00"]
    assert "unknown time zone 'Mars'" in ics.fail("list", "--tz", "Mars")
    assert "unknown time zone '../etc'" in ics.fail("list", "--tz", "../etc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("X", "--start", "noon"), "cannot read 'noon'"),
        (("X", "--start", "2030-05-14 15:00", "--end", "2030-05-14 14:00"), "after the start"),
        (("X", "--start", "2030-05-14", "--end", "2030-05-13"), "same or a later day"),
        (("X", "--start", "2030-05-14", "--repeat", "FREQ=HOURLY"), "needs FREQ="),
        (("X", "--start", "2030-05-14", "--repeat", "FREQ=DAILY;BYHOUR=3"), "BYHOUR, which is not supported"),
        (("X", "--start", "2030-05-14", "--repeat", "FREQ=DAILY;INTERVAL=0"), "at least 1"),
        (("X", "--start", "2030-05-14", "--repeat", "FREQ=WEEKLY;BYDAY=XX"), "cannot read the repetition"),
        (("X", "--start", "2030-05-14", "--repeat", "FREQ=YEARLY;BYMONTH=13"), "cannot read the repetition"),
        (("X", "--start", "9999-12-31"), "beyond the calendar"),
        (("  ", "--start", "2030-05-14"), "needs a title"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(
    ics: Script, workspace: Workspace, arguments: tuple[str, ...], message: str
) -> None:
    assert message in ics.fail("add", *arguments)
    assert not (workspace.folder / "calendar.ics").exists()


def test_text_from_outside_cannot_add_lines_to_the_file(ics: Script, workspace: Workspace) -> None:
    ics.run("add", "A\r\nUID:evil", "--start", "2030-05-14", "--location", "x\r\nEND:VEVENT", "--notes", "y\rz")
    lines = workspace.read("calendar.ics").splitlines()
    assert lines.count("END:VEVENT") == 1
    assert not [line for line in lines if line.startswith("UID:evil")]


def test_missing_and_wrong_files_are_reported(ics: Script, workspace: Workspace) -> None:
    assert "there is no calendar at calendar.ics" in ics.fail("list")
    workspace.write("calendar.ics", "hello")
    assert "not an iCalendar file" in ics.fail("list")
    assert "not an iCalendar file" in ics.fail("add", "X", "--start", "2030-05-14")
    assert workspace.read("calendar.ics") == "hello"
    workspace.write("calendar.ics", calendar())
    assert "no event has the id 'x'" in ics.fail("remove", "x")


def test_a_span_that_ends_before_it_begins_is_refused(ics: Script, workspace: Workspace) -> None:
    workspace.write("calendar.ics", calendar())
    assert "is before" in ics.fail("list", "--from", "2030-05-14", "--to", "2030-05-13")
    assert "end before they begin" in ics.fail("free", "--between", "17:00-09:00")
    assert ics.run("list") == "Nothing found.\n"


def test_without_dates_the_next_week_is_meant(ics: Script) -> None:
    soon = datetime.now().astimezone() + timedelta(days=2)
    ics.run("add", "Soon", "--start", soon.isoformat(timespec="minutes"))
    assert "Soon" in ics.run("list")
