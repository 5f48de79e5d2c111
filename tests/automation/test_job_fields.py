"""The fields with which people and agents create jobs."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.automation.job_fields import UNNAMED, draft_job, read_job_fields, revise_job
from retinue.automation.jobs import Job
from retinue.automation.schedule import Cron
from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT
from retinue.testing.clock import START


def draft(**fields: Any) -> Job:
    return draft_job(read_job_fields(fields), DEFAULT_AGENT, START, "UTC")


def revise(job: Job, **fields: Any) -> Job:
    return revise_job(job, read_job_fields(fields), START, "UTC")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"message": "Water the plants.\nAll of them."}, "Water the plants."),
        ({"message": "x", "name": "plants"}, "plants"),
        ({"message": "x", "name": "\u200b\x1b"}, "x"),
        ({"message": "\u2060", "name": "\u200b"}, UNNAMED),
    ],
)
def test_every_job_has_a_name_that_can_be_seen(fields: dict[str, str], name: str) -> None:
    assert draft(every="2h", **fields).name == name


def test_what_an_edit_leaves_out_stays() -> None:
    job = draft(message="x", name="plants", cron="0 9 * * *", tz="Asia/Tokyo", model="a/b", timeoutSeconds=5)
    assert revise(job) == job
    assert revise(job, message="y", name="\u200b") == revise(job, message="y")


def test_the_time_zone_of_a_job_can_be_changed_alone() -> None:
    job = draft(message="x", cron="0 9 * * *", tz="Asia/Tokyo")
    assert revise(job, tz="Europe/Berlin").schedule == Cron("0 9 * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"message": "  "}, "needs a message"),
        ({"tz": "Europe/Berlin"}, "cron schedule"),
        ({"tz": "Mars/Base"}, "no time zone 'Mars/Base'"),
        ({"at": "20m", "every": "2h"}, "give only one of"),
        ({"thinking": "very"}, "not one of: off"),
        ({"session": "agent:other:main"}, "belongs to another agent"),
        ({"wakeMode": "next-heartbeat"}, "session main"),
        ({"session": "main", "lightContext": True}, "session isolated"),
        ({"deliver": "webhook"}, "needs a URL"),
        ({"message": "x" * 30_000}, "longer than 20,000"),
        ({"mesage": "x"}, "mesage: is not known"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(fields: dict[str, Any], told: str) -> None:
    job = draft(message="x", every="2h")
    with pytest.raises(UsageError, match=told):
        revise(job, **fields)
