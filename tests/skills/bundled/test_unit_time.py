"""Time zones, days and units."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def convert(workspace: Workspace) -> Script:
    return script("unit-time", "convert.py", workspace)


def test_a_time_is_converted_with_the_offsets_of_its_date(convert: Script) -> None:
    zones = ("--from", "Europe/Zurich", "--to", "America/New_York")
    spring = convert.json("time", "2030-03-14 15:00", *zones)
    summer = convert.json("time", "2030-06-14 15:00", *zones)
    assert [record["time"] for record in spring] == ["2030-03-14T15:00+01:00", "2030-03-14T10:00-04:00"]
    assert summer[1]["time"] == "2030-06-14T09:00-04:00"
    assert summer[1]["weekday"] == "Friday"


def test_a_time_with_its_own_offset_needs_no_zone(convert: Script) -> None:
    (record,) = convert.json("time", "2030-03-14T15:00+05:30", "--to", "UTC")
    assert record["time"] == "2030-03-14T09:30+00:00"
    assert "name the zone" in convert.fail("time", "2030-03-14 15:00", "--to", "UTC")


@pytest.mark.parametrize(
    ("moment", "note"),
    [("2030-03-31 02:30", "skipped that day"), ("2030-10-27 02:30", "happens twice that day")],
)
def test_clock_changes_are_mentioned(convert: Script, moment: str, note: str) -> None:
    assert note in convert.run("time", moment, "--from", "Europe/Zurich", "--to", "UTC")


def test_an_ordinary_time_has_no_note(convert: Script) -> None:
    assert "clocks" not in convert.run("time", "2030-03-31 12:00", "--from", "Europe/Zurich", "--to", "UTC")


def test_now_can_be_pinned(convert: Script) -> None:
    assert convert.json("now", "Asia/Kolkata", "--at", "2030-01-01T00:00")[0]["time"] == "2030-01-01T05:30+05:30"
    assert "Asia/Kolkata" in convert.run("now", "Asia/Kolkata")


def test_meeting_hours_overlap(convert: Script) -> None:
    found = convert.json("meet", "2030-03-14", "--zones", "Europe/Zurich", "America/New_York")
    assert found == [
        {"zone": "Europe/Zurich", "from": "Thu 2030-03-14 14:00", "to": "17:00"},
        {"zone": "America/New_York", "from": "Thu 2030-03-14 09:00", "to": "12:00"},
    ]
    assert convert.run("meet", "2030-03-14", "--zones", "Europe/Zurich", "Pacific/Auckland") == "Nothing found.\n"
    assert "end before they begin" in convert.fail("meet", "2030-03-14", "--zones", "UTC", "--hours", "17:00-09:00")


@pytest.mark.parametrize(
    ("first", "last", "days", "working"),
    [
        ("2030-05-13", "2030-05-20", 7, 5),
        ("2030-05-17", "2030-05-20", 3, 1),
        ("2030-05-20", "2030-05-17", -3, -1),
        ("2030-05-18", "2030-05-19", 1, 0),
        ("2028-02-28", "2028-03-01", 2, 2),
        ("2030-05-14", "2030-05-14", 0, 0),
    ],
)
def test_days_are_counted(convert: Script, first: str, last: str, days: int, working: int) -> None:
    (record,) = convert.json("days", first, last)
    assert (record["days"], record["working_days"]) == (days, working)


@pytest.mark.parametrize(
    ("value", "source", "target", "result"),
    [
        ("5", "mi", "km", "8.04672"),
        ("350", "degF", "degC", "176.6666667"),
        ("-40", "degC", "degF", "-40"),
        ("0", "K", "degC", "-273.15"),
        ("100", "km/h", "mph", "62.13711922"),
        ("1", "GiB", "MB", "1073.741824"),
        ("8", "Mb", "MB", "1"),
        ("1", "cup", "ml", "236.5882365"),
        ("1", "acre", "m2", "4046.856422"),
        ("1", "kWh", "MJ", "3.6"),
        ("1e20", "km", "m", "1e+23"),
        ("1_000", "g", "kg", "1"),
        ("100", "KM", "m", "100000"),
    ],
)
def test_units_are_converted(convert: Script, value: str, source: str, target: str, result: str) -> None:
    assert convert.json("unit", value, source, target)[0]["result"] == result


@pytest.mark.slow
def test_a_conversion_there_and_back_gives_the_same(convert: Script) -> None:
    for kind in convert.json("units"):
        first, other = kind["units"][0], kind["units"][-1]
        there = convert.json("unit", "7", first, other)[0]["result"]
        assert float(convert.json("unit", there, other, first)[0]["result"]) == pytest.approx(7)


def test_zones_are_found_by_a_word(convert: Script) -> None:
    assert "America/New_York" in convert.run("zones", "new york")
    assert convert.run("zones", "atlantis") == "Nothing found.\n"


def test_what_does_not_convert_is_refused(convert: Script) -> None:
    assert "mi measures length and kg mass" in convert.fail("unit", "5", "mi", "kg")
    assert "did you mean MB or Mb?" in convert.fail("unit", "5", "mb", "B")
    assert "unknown unit 'parsec'" in convert.fail("unit", "5", "parsec", "m")
    assert "cannot read the number 'five'" in convert.fail("unit", "five", "mi", "km")
    assert "cannot read the number 'NaN'" in convert.fail("unit", "NaN", "mi", "km")
    assert "unknown time zone 'Mars/Base'" in convert.fail("now", "Mars/Base")
    assert "unknown time zone '../../etc/passwd'" in convert.fail("now", "../../etc/passwd")
    assert "cannot read the time 'noon'" in convert.fail("time", "noon", "--to", "UTC")
    assert "unknown kind 'money'" in convert.fail("units", "money")
    assert "invalid" in convert.misuse("days", "2030-02-30", "2030-03-01")
