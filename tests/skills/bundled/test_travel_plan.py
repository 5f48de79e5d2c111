"""Itineraries across time zones."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def trip(workspace: Workspace) -> Script:
    return script("travel-plan", "trip.py", workspace)


def add(trip: Script, kind: str, title: str, start: str, end: str) -> None:
    trip.run("add", kind, title, "--start", start, "--end", end)


def test_durations_across_zones_are_exact(trip: Script) -> None:
    add(trip, "flight", "LX 64", "2030-05-14 09:40 Europe/Zurich", "2030-05-14 14:35 America/New_York")
    (leg,) = trip.json("show")
    assert leg["minutes"] == 10 * 60 + 55
    assert trip.run("show").splitlines()[1] == (
        "  1. 09:40 Europe/Zurich - 2030-05-14 14:35 America/New_York  flight: LX 64  (10 h 55 min)"
    )


def test_a_night_in_which_the_clocks_change_has_an_hour_less(trip: Script) -> None:
    add(trip, "train", "Night train", "2030-03-30 22:00 Europe/Zurich", "2030-03-31 06:00")
    assert trip.json("show")[0]["minutes"] == 7 * 60


def test_the_check_finds_what_does_not_fit(trip: Script) -> None:
    add(trip, "train", "A", "2030-05-14 06:00 Europe/Zurich", "2030-05-14 09:20")
    add(trip, "flight", "B", "2030-05-14 09:40 Europe/Zurich", "2030-05-14 11:00 Europe/London")
    add(trip, "event", "Concert", "2030-05-14 10:30 Europe/London", "2030-05-14 12:00")
    add(trip, "stay", "Inn", "2030-05-15 15:00 Europe/London", "2030-05-16 10:00")
    assert trip.json("check", "--connection", 30) == [
        "20 minutes from A to B, less than 30",
        "Concert begins before B ends",
        "no place to stay in the night from 2030-05-14",
    ]
    assert trip.json("remove", 3)["title"] == "Concert"
    assert len(trip.json("check", "--connection", 10)) == 1


def test_the_packing_list_shows_what_is_missing(trip: Script) -> None:
    trip.run("pack", "--add", "passport, adapter")
    assert trip.json("pack", "--done", "passport") == ["adapter"]
    assert trip.json("pack") == ["adapter"]
    assert "not on the packing list" in trip.fail("pack", "--done", "tent")


@pytest.mark.parametrize(
    "start", ["2030-05-14 09:40", "2030-05-14 09:40 Mars/Base", "soon Europe/Zurich x", "2030-05-14"]
)
def test_a_time_needs_a_zone(trip: Script, start: str) -> None:
    assert "cannot read the time" in trip.fail("add", "event", "x", "--start", start, "--end", "2030-05-14 10:00")


def test_an_end_before_its_start_is_refused(trip: Script, workspace: Workspace) -> None:
    times = ("--start", "2030-05-14 09:00 Asia/Tokyo", "--end", "2030-05-14 08:00 Asia/Tokyo")
    assert "is before the start" in trip.fail("add", "event", "x", *times)
    assert "there is no entry 1" in trip.fail("remove", 1)
    workspace.write("trip.json", "[]")
    assert "is not a trip" in trip.fail("show")
