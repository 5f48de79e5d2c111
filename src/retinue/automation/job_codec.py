"""Jobs as text, for the database and for people who ask for JSON."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, assert_never

from retinue.automation.jobs import Delivery, DeliveryMode, Job, JobRun
from retinue.automation.schedule import At, Cron, Every, Schedule
from retinue.core.clock import format_moment, parse_moment
from retinue.core.keys import AgentId


def encode_job(job: Job) -> str:
    return json.dumps(describe_job(job), ensure_ascii=False)


def describe_job(job: Job) -> dict[str, Any]:
    """A job as plain data, in the words of the configuration and the wire."""
    delivery = {
        "mode": job.delivery.mode,
        "channel": job.delivery.channel,
        "to": job.delivery.to,
        "url": job.delivery.url,
    }
    return {
        "id": job.id,
        "name": job.name,
        "agentId": job.agent,
        "schedule": describe_schedule(job.schedule),
        "message": job.message,
        "sessionTarget": job.target,
        "delivery": {name: value for name, value in delivery.items() if value is not None},
        "model": job.model,
        "thinking": job.thinking,
        "timeoutSeconds": job.timeout_seconds,
        "enabled": job.enabled,
        "deleteAfterRun": job.delete_after_run,
        "wakeMode": job.wake_mode,
        "createdBy": job.created_by,
        "createdAt": format_moment(job.created_at),
        "servedAt": format_moment(job.served),
        "nextAt": format_moment(job.next_at) if job.next_at else None,
        "failures": job.failures,
    }


def describe_schedule(schedule: Schedule) -> dict[str, Any]:
    match schedule:
        case At(when):
            return {"kind": "at", "at": format_moment(when)}
        case Every(interval, anchor):
            return {"kind": "every", "everyMs": interval // timedelta(milliseconds=1), "anchor": format_moment(anchor)}
        case Cron(expression, zone):
            return {"kind": "cron", "expr": expression, "tz": zone}
    assert_never(schedule)


def describe_run(run: JobRun) -> dict[str, Any]:
    """A run of a job as plain data."""
    return {
        "run": run.run,
        "job": run.job,
        "slot": format_moment(run.slot),
        "reason": run.reason,
        "startedAt": format_moment(run.started_at),
        "endedAt": format_moment(run.ended_at) if run.ended_at else None,
        "outcome": run.outcome,
        "summary": run.summary,
    }


def decode_job(text: str) -> Job:
    """A job as `encode_job` wrote it."""
    data = json.loads(text)
    delivery = data["delivery"]
    return Job(
        id=data["id"],
        name=data["name"],
        agent=AgentId(data["agentId"]),
        schedule=_decode_schedule(data["schedule"]),
        message=data["message"],
        target=data["sessionTarget"],
        delivery=Delivery(
            DeliveryMode(delivery["mode"]), delivery.get("channel"), delivery.get("to"), delivery.get("url")
        ),
        model=data["model"],
        thinking=data["thinking"],
        timeout_seconds=data["timeoutSeconds"],
        enabled=data["enabled"],
        delete_after_run=data["deleteAfterRun"],
        wake_mode=data.get("wakeMode", "now"),
        created_by=data["createdBy"],
        created_at=parse_moment(data["createdAt"]),
        served=parse_moment(data["servedAt"]),
        next_at=parse_moment(data["nextAt"]) if data["nextAt"] else None,
        failures=data["failures"],
    )


def _decode_schedule(data: dict[str, Any]) -> Schedule:
    match data:
        case {"kind": "at", "at": str(when)}:
            return At(parse_moment(when))
        case {"kind": "every", "everyMs": int(milliseconds), "anchor": str(anchor)}:
            return Every(timedelta(milliseconds=milliseconds), parse_moment(anchor))
        case {"kind": "cron", "expr": str(expression), "tz": str(zone)}:
            return Cron(expression, zone)
    raise ValueError(f"not a schedule: {data}")
