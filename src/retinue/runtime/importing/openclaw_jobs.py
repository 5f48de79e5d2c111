"""The cron jobs of an OpenClaw home and their runs, from files or from the database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.job_fields import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, UNNAMED
from retinue.automation.jobs import Delivery, DeliveryMode, Job, JobRun, JobStore, Outcome
from retinue.automation.schedule import At, Every, Schedule, find_zone, parse_cron
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, RunId, SessionKey, parse_agent_id
from retinue.core.model import ReasoningEffort
from retinue.runtime.importing.openclaw_home import OpenClawHome, has_rows, parse_json, read_json, rows
from retinue.runtime.importing.plan import ImportLedger, Omission, StepResult, mapping, stable_id
from retinue.security.untrusted_text import literal

KIND = "jobs"
_OUTCOMES: Mapping[str, Outcome] = {"ok": "ok", "error": "failed", "skipped": "skipped", "interrupted": "interrupted"}
_RECEIPTS = "SELECT * FROM cron_run_receipts WHERE job_id = ? ORDER BY started_at_ms"
_LEFT_OVER = ("jobs.json.migrated", "jobs.json.bak")


class FoundJob(Struct, frozen=True):
    """A job of the source under its own id, with the records of its runs as they were written."""

    source_id: str
    job: Job
    runs: tuple[JobRun, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()


def find_jobs(
    home: OpenClawHome, agents: Sequence[AgentId], default: AgentId, zone: str, now: datetime
) -> tuple[list[FoundJob], list[Omission]]:
    """Return the jobs of the given agents, and those that cannot be imported."""
    found: list[FoundJob] = []
    omissions: list[Omission] = []
    for data in _job_records(home):
        name = str(data.get("name") or data.get("id") or data.get("jobId") or UNNAMED)
        source_id = str(data.get("id") or data.get("jobId") or stable_id(json.dumps(data, sort_keys=True)))
        try:
            job = convert_job(data, source_id, default, zone, now)
        except (UsageError, ValueError, TypeError, OverflowError, OSError) as error:
            omissions.append(Omission(name, str(error)))
            continue
        if job.agent not in agents:
            omissions.append(Omission(name, f"it belongs to the agent {job.agent}, which is not imported"))
            continue
        history = tuple(_history(home, source_id))
        runs = (run for entry in history if (run := _convert_run(entry, job)) is not None)
        found.append(FoundJob(source_id, job, tuple(runs), history))
    return found, omissions


def _job_records(home: OpenClawHome) -> Iterator[Mapping[str, Any]]:
    base = home.state()
    if has_rows(base, "cron_jobs"):
        for row in rows(base, "SELECT job_json, state_json FROM cron_jobs ORDER BY sort_order, job_id"):
            yield {**mapping(parse_json(row["job_json"])), "state": mapping(parse_json(row["state_json"]))}
        return
    for file in _job_files(home):
        listed = _jobs_in(file)
        if listed is not None:
            yield from map(mapping, listed)
            return
        if file.is_file():
            home.faults.append(Omission(file.name, "it cannot be read as a list of jobs"))


def _job_files(home: OpenClawHome) -> list[Path]:
    named = mapping(home.config.get("cron")).get("store")
    files = [Path(named).expanduser()] if isinstance(named, str) and named else []
    return files + [home.path / "cron" / name for name in ("jobs.json", *_LEFT_OVER)]


def _jobs_in(file: Path) -> list[Any] | None:
    data = read_json(file)
    listed = data if isinstance(data, list) else mapping(data).get("jobs")
    return listed if isinstance(listed, list) else None


def left_over_jobs(home: OpenClawHome) -> Path | None:
    """Return the file that has the jobs if only a migration left it over."""
    if has_rows(home.state(), "cron_jobs"):
        return None
    file = next((file for file in _job_files(home) if _jobs_in(file) is not None), None)
    return file if file is not None and file.name in _LEFT_OVER else None


def convert_job(data: Mapping[str, Any], source_id: str, default: AgentId, zone: str, now: datetime) -> Job:
    """Return a job of OpenClaw as one of ours; raise `UsageError` if it has no counterpart."""
    if data.get("declarationKey"):
        raise UsageError("OpenClaw made it for its own upkeep; Retinue has its own")
    payload = mapping(data.get("payload"))
    match payload.get("kind"):
        case "systemEvent":
            message = payload.get("text")
        case "agentTurn" | None:
            message = payload.get("message") or payload.get("text") or data.get("message")
        case other:
            raise UsageError(f"its kind '{other}' has no counterpart")
    if not isinstance(message, str) or not message.strip():
        raise UsageError("it has no message")
    if len(message) > MAX_MESSAGE_CHARS:
        raise UsageError(f"its message is longer than {MAX_MESSAGE_CHARS:,} characters")
    agent = parse_agent_id(data["agentId"]) if isinstance(data.get("agentId"), str) else default
    thinking, seconds = payload.get("thinking"), payload.get("timeoutSeconds")
    target = _convert_target(data, agent)
    return Job(
        stable_id("openclaw", source_id),
        literal(str(data.get("name") or ""), MAX_NAME_CHARS) or UNNAMED,
        agent,
        _convert_schedule(mapping(data.get("schedule")), zone, now),
        message,
        target=target,
        delivery=_convert_delivery(data),
        model=payload["model"] if isinstance(payload.get("model"), str) else None,
        thinking=thinking if thinking in tuple(ReasoningEffort) else None,
        timeout_seconds=seconds if isinstance(seconds, int) and 0 < seconds <= 86_400 else None,
        enabled=data.get("enabled") is not False,
        delete_after_run=data.get("deleteAfterRun") is True,
        wake_mode="next-heartbeat" if target == "main" and data.get("wakeMode") == "next-heartbeat" else "now",
        created_at=_moment(data.get("createdAtMs")) or now,
        served=now,
    )


def _convert_schedule(schedule: Mapping[str, Any], zone: str, now: datetime) -> Schedule:
    match schedule.get("kind"):
        case "at":
            when = _moment(schedule.get("atMs")) or _parse_time(schedule.get("at"), zone)
            return At(when)
        case "every":
            every = schedule.get("everyMs")
            if not isinstance(every, (int, float)) or every < 1_000:
                raise UsageError("its interval is shorter than a second")
            return Every(timedelta(milliseconds=int(every)), _moment(schedule.get("anchorMs")) or now)
        case "cron":
            fields = str(schedule.get("expr") or schedule.get("cron") or "").split()
            if len(fields) == 6 and fields[0] == "0":
                del fields[0]  # the seconds
            named = str(schedule.get("tz") or zone)
            find_zone(named)
            return parse_cron(" ".join(fields), named)
    raise UsageError(f"its schedule '{schedule.get('kind')}' has no counterpart")


def _parse_time(value: object, zone: str) -> datetime:
    moment = datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=find_zone(zone))


def _convert_target(data: Mapping[str, Any], agent: AgentId) -> str:
    target = data.get("sessionTarget")
    if target in ("main", "isolated"):
        return str(target)
    if isinstance(target, str) and target.startswith("session:"):
        key = SessionKey.parse(target.removeprefix("session:"), default_agent=agent)
        if key.agent == agent:
            return key.text
    return "isolated" if mapping(data.get("payload")).get("kind") == "agentTurn" else "main"


def _convert_delivery(data: Mapping[str, Any]) -> Delivery:
    delivery = mapping(data.get("delivery"))
    channel, to = delivery.get("channel"), delivery.get("to")
    if delivery.get("mode") == "webhook" and isinstance(to, str) and to.startswith(("http://", "https://")):
        return Delivery(DeliveryMode.WEBHOOK, url=to)
    if delivery.get("mode") == "none" or (not delivery and data.get("notify") is False):
        return Delivery(DeliveryMode.NONE)
    named = channel if isinstance(channel, str) and channel != "last" else None
    return Delivery(DeliveryMode.ANNOUNCE, named, to if isinstance(to, str) else None)


def _history(home: OpenClawHome, job: str) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a job's runs, the oldest first."""
    for row in rows(home.state(), _RECEIPTS, (job,)):
        yield {name: row[name] for name in row.keys() if row[name] is not None}  # noqa: SIM118 - a row has no items
    folder = home.path / "cron" / "runs"
    for file in (folder / f"{job}.jsonl", folder / f"{job}.jsonl.migrated"):
        if Path(job).name != job or not file.is_file():
            continue
        for line in file.read_bytes().splitlines():
            if record := mapping(parse_json(line)):
                yield record


def _convert_run(record: Mapping[str, Any], job: Job) -> JobRun | None:
    """Return a run that ended; None for other records."""
    status = _OUTCOMES.get(str(record.get("status")))
    started = _moment(record.get("started_at_ms") or record.get("runAtMs"))
    if status is None or started is None:
        return None
    seconds = record.get("durationMs")
    ended = _moment(record.get("finished_at_ms") or record.get("ts"))
    if isinstance(seconds, (int, float)):
        ended = started + timedelta(milliseconds=seconds)
    run = str(record.get("receipt_id") or record.get("sessionId") or stable_id(job.id, started.isoformat()))
    summary = str(record.get("error_text") or record.get("error") or record.get("summary") or "")
    by_hand = str(record.get("request_run_id")).startswith("manual:")
    reason: Literal["manual", "schedule"] = "manual" if by_hand else "schedule"
    identity = RunId(stable_id(job.id, run, started.isoformat(), length=32))
    return JobRun(job.id, identity, started, reason, started, status, ended or started, summary[:2_000])


def _moment(milliseconds: object) -> datetime | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def import_jobs(
    found: Sequence[FoundJob], store: JobStore, ledger: ImportLedger, history: Path, done: StepResult
) -> None:
    """Store the jobs that were not imported before, with their runs."""
    done.facts |= {"runs": 0, "history": str(history)}
    for each in found:
        if ledger.has(KIND, each.source_id):
            done.already += 1
            continue
        if store.adopt(replace(each.job), each.runs):
            done.imported += 1
            done.facts["runs"] += len(each.history)
        else:
            done.already += 1
        ledger.add(KIND, each.source_id)


def write_history(found: Sequence[FoundJob], file: Path) -> None:
    """Write the records of all runs as lines of JSON, because the home keeps runs for a week only."""
    from retinue.storage.files import write_atomic

    lines = [
        json.dumps({"job": each.job.id, "sourceJob": each.source_id, **record}, ensure_ascii=False)
        for each in found
        for record in each.history
    ]
    if lines:
        write_atomic(file, ("\n".join(lines) + "\n").encode("utf-8", "replace"))
