"""`retinue cron`: jobs from the command line."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import RunCommand


def add(retinue: RunCommand, *arguments: str) -> dict[str, Any]:
    ran = retinue("cron", "add", *arguments, "--json")
    assert ran.code == 0, ran.err
    added: dict[str, Any] = json.loads(ran.out)
    return added


def test_a_job_is_added_listed_changed_paused_and_removed(retinue: RunCommand) -> None:
    assert "There are no jobs" in retinue("cron", "list").out
    job = add(retinue, "--cron", "0 8 * * 1-5", "--tz", "Europe/Berlin", "-m", "Sum up my calendar.")
    assert job["schedule"] == {"kind": "cron", "expr": "0 8 * * 1-5", "tz": "Europe/Berlin"}
    assert job["name"] == "Sum up my calendar."
    assert retinue("cron", "edit", job["id"], "--name", "calendar", "--every", "2h").code == 0
    (listed,) = json.loads(retinue("cron", "list", "--json").out)
    assert (listed["name"], listed["schedule"]["everyMs"], listed["message"]) == ("calendar", 7_200_000, job["message"])
    assert "does not run" in retinue("cron", "pause", "calendar").out
    assert json.loads(retinue("cron", "list", "--json").out)[0]["nextAt"] is None
    assert "next at" in retinue("cron", "pause", "calendar", "--resume").out
    assert "has not run yet" in retinue("cron", "runs", "calendar").out
    assert retinue("cron", "remove", "calendar").code == 0
    assert json.loads(retinue("cron", "list", "--json").out) == []


def test_a_job_can_wait_for_the_next_heartbeat(retinue: RunCommand) -> None:
    job = add(retinue, "--every", "1h", "-m", "x", "--session", "main", "--wake-mode", "next-heartbeat")
    assert job["wakeMode"] == "next-heartbeat"
    assert add(retinue, "--every", "1h", "-m", "y")["wakeMode"] == "now"


def test_a_wrong_job_is_refused_with_advice(retinue: RunCommand) -> None:
    for arguments, told in (
        (["-m", "x"], "A job needs a schedule"),
        (["--every", "1h"], "A job needs a message"),
        (["--every", "1h", "--at", "2h", "-m", "x"], "give only one of"),
        (["--cron", "99 * * * *", "-m", "x"], "is not a cron expression"),
        (["--at", "2020-01-01T00:00", "-m", "x"], "would never run"),
        (["--every", "1h", "-m", "x", "--tz", "Mars/Olympus"], "There is no time zone"),
        (["--every", "1h", "-m", "x", "--thinking", "madly"], "is not one of"),
        (["--every", "1h", "-m", "x", "--deliver", "webhook"], "needs a URL"),
        (["--every", "1h", "-m", "x", "--session", "agent:other:main"], "belongs to another agent"),
        (["--every", "1h", "-m", "x", "--agent", "nobody"], "nobody"),
        (["--every", "1h", "-m", "x", "--wake-mode", "next-heartbeat"], "requires the session main"),
    ):
        ran = retinue("cron", "add", *arguments)
        assert ran.code != 0
        assert told in ran.err, arguments
    assert json.loads(retinue("cron", "list", "--json").out) == []


def test_an_unknown_job_is_named_with_those_that_are_there(retinue: RunCommand) -> None:
    job = add(retinue, "--every", "1d", "-m", "hello", "--name", "greet")
    for command in ("remove", "runs", "pause", "edit", "run"):
        ran = retinue("cron", command, "grete")
        assert ran.code != 0
        assert f"There is no job 'grete'. Jobs: {job['id']} (greet)." in ran.err


def test_a_run_by_hand_that_fails_says_why(retinue: RunCommand) -> None:
    add(retinue, "--every", "1d", "-m", "hello", "--name", "greet")
    ran = retinue("cron", "run", "greet")
    assert ran.code == 1
    assert "There is no model to talk to yet" in ran.out
    (run,) = json.loads(retinue("cron", "runs", "greet", "--json").out)
    assert (run["reason"], run["outcome"]) == ("manual", "failed")


def test_a_job_below_a_minute_is_added_only_on_purpose(retinue: RunCommand) -> None:
    refused = retinue("cron", "add", "--every", "30s", "-m", "x")
    assert refused.code == 2
    assert "2,880 times a day" in refused.err
    assert "--yes" in refused.err
    assert retinue("cron", "list", "--json").data == []
    added = retinue("cron", "add", "--every", "30s", "-m", "x", "--yes", "--json")
    assert added.code == 0
    job = added.data["id"]
    assert "8,640 times a day" in retinue("cron", "edit", job, "--every", "10s").err
    assert retinue("cron", "edit", job, "--every", "10s", "--yes").code == 0
    assert retinue("cron", "edit", job, "--name", "y").code == 0, "what stays as it is needs no question"
