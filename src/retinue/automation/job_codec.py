"""Jobs as JSON, for the database and for `--json`; the declarations of `automation.jobs` are the format."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from retinue.automation.jobs import Job, JobRun
from retinue.automation.schedule import Every
from retinue.core.codec import dump_json, from_plain, load_json, to_plain

_MILLISECOND = timedelta(milliseconds=1)


def encode_job(job: Job) -> str:
    return dump_json(describe_job(job))


def decode_job(text: str) -> Job:
    """Return the job that `encode_job` wrote; raise `ValueError` if it cannot be read."""
    data = load_json(text)
    schedule = data.get("schedule")
    if isinstance(schedule, dict) and isinstance(milliseconds := schedule.get("everyMs"), int):
        schedule["everyMs"] = milliseconds * _MILLISECOND
    return from_plain(data, Job)


def describe_job(job: Job) -> dict[str, Any]:
    """Return a job as JSON data, with the names of the configuration and the wire protocol."""
    data = to_plain(job)
    data["delivery"] = {name: value for name, value in data["delivery"].items() if value is not None}
    if isinstance(job.schedule, Every):
        data["schedule"]["everyMs"] = job.schedule.interval // _MILLISECOND
    return data


def describe_run(run: JobRun) -> dict[str, Any]:
    """Return a run of a job as JSON data."""
    return to_plain(run)
