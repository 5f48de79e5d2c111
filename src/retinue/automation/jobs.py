"""Scheduled jobs: when they are due next, their JSON format, and their store in the home's database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.automation.schedule import At, Every, Schedule, due_slot, next_slot
from retinue.core.clock import EPOCH, MIN_JUMP, Clock, IdFactory, format_moment, parse_moment, random_uuid
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.storage.database import Database, Row, StateChange, Value

BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (30, 60, 300, 900, 3_600))
"""The delay after the first, second, … consecutive failure of a job."""

MAX_RETRIES = 3
"""How often a job that runs once is retried."""


MAX_JOBS = 20_000
KEEP_RUNS = timedelta(days=7)

_MILLISECOND = timedelta(milliseconds=1)

_KEEP = """
INSERT INTO jobs (id, agent, body, enabled, next_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, body = excluded.body, enabled = excluded.enabled,
    next_at = excluded.next_at
"""
_ALL = "SELECT body FROM jobs ORDER BY rowid"
_ONE = "SELECT body FROM jobs WHERE id = ?"
_DUE = "SELECT body FROM jobs WHERE enabled = 1 AND next_at <= ? ORDER BY next_at LIMIT ?"
_SOONEST = "SELECT min(next_at) FROM jobs WHERE enabled = 1 AND next_at IS NOT NULL"
_BEGIN = (
    "INSERT INTO job_runs (run, job, slot, reason, started_at, outcome, summary) VALUES (?, ?, ?, ?, ?, 'running', '')"
)
_ADOPT_RUN = """
INSERT INTO job_runs (run, job, slot, reason, started_at, outcome, summary, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_END = "UPDATE job_runs SET outcome = ?, ended_at = ?, summary = ? WHERE run = ? AND outcome = 'running'"
_REMARK = "UPDATE job_runs SET summary = CASE summary WHEN '' THEN '' ELSE summary || ? END || ? WHERE run = ?"
_RUNS = "SELECT * FROM job_runs WHERE job = ? ORDER BY started_at DESC, rowid DESC LIMIT ?"
_RAN = "SELECT count(*) FROM job_runs WHERE job = ? AND slot = ? AND reason <> 'manual'"
_LAST_SLOT = "SELECT max(slot) FROM job_runs WHERE job = ? AND slot <= ? AND reason <> 'manual'"
_CORRECT_STARTS = "UPDATE job_runs SET started_at = ? WHERE started_at > ?"
_CORRECT_ENDS = "UPDATE job_runs SET ended_at = ? WHERE ended_at > ?"
_UNFINISHED = "SELECT * FROM job_runs WHERE outcome = 'running' ORDER BY rowid"
_FORGET_RUNS = "DELETE FROM job_runs WHERE started_at < ? AND outcome <> 'running'"


class DeliveryMode(StrEnum):
    """How a job's answer is delivered."""

    NONE = "none"
    ANNOUNCE = "announce"
    WEBHOOK = "webhook"


class Delivery(Struct, frozen=True):
    """Where a job's answer is delivered: nowhere, to a chat (the last used if none is named), or to a URL."""

    mode: DeliveryMode = DeliveryMode.ANNOUNCE
    channel: str | None = None
    to: str | None = None
    url: str | None = None


WakeMode = Literal["now", "next-heartbeat"]
"""Whether a job of the main session gets its own turn or waits for the next heartbeat."""

Outcome = Literal["running", "ok", "failed", "skipped", "interrupted"]


class Job(Struct, frozen=True, rename="camel"):
    """A message that an agent gets at scheduled times.

    `target` is `main` (the agent's main session), `isolated` (a new session for each run) or a session key.
    """

    id: str
    name: str
    agent: AgentId = field(name="agentId")
    schedule: Schedule
    message: str
    target: str = field(default="isolated", name="sessionTarget")
    delivery: Delivery = field(default_factory=Delivery)
    model: str | None = None
    thinking: str | None = None
    timeout_seconds: int | None = None
    light_context: bool = False
    """Whether the prompt of its runs has neither workspace files nor skills; for isolated sessions."""
    enabled: bool = True
    delete_after_run: bool = False
    wake_mode: WakeMode = "now"
    created_by: str = "owner"
    created_at: datetime = EPOCH
    served: datetime = field(default=EPOCH, name="servedAt")
    """The slot that ran last, or the time from which slots count."""
    next_at: datetime | None = None
    failures: int = 0

    def session_of(self, run: RunId) -> SessionKey:
        """Return the session of a run of this job."""
        match self.target:
            case "main":
                return SessionKey.main(self.agent)
            case "isolated":
                return SessionKey.parse(f"agent:{self.agent}:cron:{self.id}:run:{run}")
            case _:
                return SessionKey.parse(self.target, default_agent=self.agent)


class JobRun(Struct, frozen=True, rename="camel"):
    """One run of a job: its slot, reason and outcome."""

    job: str
    run: RunId
    slot: datetime
    reason: Literal["schedule", "manual", "retry"]
    started_at: datetime
    outcome: Outcome = "running"
    ended_at: datetime | None = None
    summary: str = ""


def plan_next(job: Job, now: datetime) -> Job:
    """Return the job with its next due time; a job without one is disabled."""
    if not job.enabled:
        return replace(job, next_at=None)
    soonest = due_slot(job.schedule, job.served, now) or next_slot(job.schedule, max(job.served, now))
    return replace(job, next_at=soonest, enabled=soonest is not None)


def after_run(job: Job, now: datetime, *, ok: bool) -> Job:
    """Return the job after a run: next slot as scheduled, or after a failure not before its delay."""
    ended = replace(job, failures=0 if ok else job.failures + 1)
    if ok:
        return plan_next(ended, now)
    again = not isinstance(job.schedule, At) or ended.failures <= MAX_RETRIES
    return replace(ended, next_at=latest_next_run(ended, now) if again else None, enabled=again)


def latest_next_run(job: Job, now: datetime) -> datetime | None:
    """Return the time after which the next run of a job cannot be, if the clock was not ahead when it was planned.

    This is the next slot from now, or after a failure the first slot after its delay.
    """
    rested = now + BACKOFF[min(job.failures, len(BACKOFF)) - 1] if job.failures else now
    match job.schedule:
        case At(when):
            return rested if job.failures else when
        case Every(interval, anchor) if anchor - rested > interval:
            return rested + interval
        case _:
            return next_slot(job.schedule, rested - timedelta(microseconds=1) if job.failures else rested)


def has_times_ahead(job: Job, now: datetime) -> bool:
    """Return whether a clock that was ahead planned the next run of a job, so that it would come too late or never."""
    ahead = now + MIN_JUMP
    if job.next_at is None:
        return False
    if job.served > ahead and not isinstance(job.schedule, At):
        return True
    if job.next_at <= ahead:
        return False
    latest = latest_next_run(job, now)
    return latest is not None and job.next_at > latest


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


class JobStore:
    """The jobs of a home and their runs. Several processes may share it; each slot is started by one of them."""

    def __init__(self, database: Database, clock: Clock, new_id: IdFactory) -> None:
        self._database = database
        self._clock = clock
        self._new_id = new_id

    def add(self, job: Job) -> Job:
        """Store a new job under a new id; return it."""
        now = self._clock.now()
        fresh = plan_next(replace(job, id=self._new_id()[:8], created_at=now, served=now), now)
        if fresh.next_at is None and fresh.enabled is False and job.enabled:
            raise UsageError(f"The job would never run: {job.schedule} is in the past. Give a later time.")
        with self._database.change() as base:
            if base.execute("SELECT count(*) FROM jobs").fetchone()[0] >= MAX_JOBS:
                raise UsageError(f"There are already {MAX_JOBS:,} jobs. Remove some first.")
            _write(base, fresh)
        return fresh

    def adopt(self, job: Job, runs: Iterable[JobRun] = ()) -> bool:
        """Store a job of another program under its own id, with the runs that ended; return False if it exists.

        Its slots count from now on, and a job whose times are over is stored as finished.
        """
        planned = plan_next(job, self._clock.now())
        with self._database.change(durable=True) as base:
            if base.execute(_ONE, (job.id,)).fetchone() is not None:
                return False
            if base.execute("SELECT count(*) FROM jobs").fetchone()[0] >= MAX_JOBS:
                raise UsageError(f"There are already {MAX_JOBS:,} jobs. Remove some first.")
            _write(base, planned)
            for run in runs:
                base.execute(_ADOPT_RUN, _run_row(run))
        return True

    def change(self, job: Job) -> Job:
        """Store an edited job; its next run is planned again."""
        now = self._clock.now()
        planned = plan_next(replace(job, served=now), now)
        with self._database.change() as base:
            _write(base, planned)
        return planned

    def make_due(self, job: Job) -> Job:
        """Make a job due now, independent of its schedule; raise `UsageError` if it is paused."""
        if not job.enabled:
            raise UsageError(f"The job '{job.name}' is paused or finished. Resume it first.")
        hastened = replace(job, next_at=self._clock.now())
        with self._database.change() as base:
            _write(base, hastened)
        return hastened

    def remove(self, job: str) -> bool:
        """Delete a job; its runs are kept until they expire."""
        with self._database.change() as base:
            return base.execute("DELETE FROM jobs WHERE id = ?", (job,)).rowcount == 1

    def get(self, job: str) -> Job:
        """Return a job by id or name; raise `UsageError` if it is unknown or the name is ambiguous."""
        rows = self._database.read(_ONE, (job,))
        if rows:
            return decode_job(rows[0]["body"])
        named = [known for known in self.all() if known.name == job]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(known.id for known in named)
            raise UsageError(f"{len(named)} jobs have the name '{job}'. Use an id: {ids}.")
        known = ", ".join(f"{known.id} ({known.name})" for known in self.all()[:10]) or "none"
        how = "`retinue cron list` shows them, `retinue cron add` adds one."
        raise UsageError(f"There is no job '{job}'. Jobs: {known}. {how}")

    def all(self) -> tuple[Job, ...]:
        return tuple(decode_job(row["body"]) for row in self._database.read(_ALL))

    def soonest(self) -> datetime | None:
        """Return when the next job is due."""
        (row,) = self._database.read(_SOONEST)
        return parse_moment(row[0]) if row[0] else None

    def due(self, limit: int) -> tuple[Job, ...]:
        """Return due jobs, the longest waiting first."""
        rows = self._database.read(_DUE, (format_moment(self._clock.now()), limit))
        return tuple(decode_job(row["body"]) for row in rows)

    def begin(self, job: Job, run: RunId, reason: Literal["schedule", "manual"] = "schedule") -> JobRun | None:
        """Record the start of a run and plan the next one; return None if another process started it meanwhile."""
        now = self._clock.now()
        with self._database.change(durable=True) as base:
            row = base.execute(_ONE, (job.id,)).fetchone()
            current = decode_job(row["body"]) if row else None
            if current is None or (reason == "schedule" and current.next_at != job.next_at):
                return None
            current = _correct(base, current, now)
            due = due_slot(current.schedule, current.served, now) if reason == "schedule" else None
            if due is not None and _has_run(base, current, due):
                # It ran before the clock was set back.
                _write(base, plan_next(_count_from_now(base, replace(current, served=due), now), now))
                return None
            # A job that is due without a slot or a failure was requested by a person (`make_due`).
            why: Literal["schedule", "manual", "retry"] = "schedule" if due is not None else "manual"
            if reason == "schedule" and current.failures:
                why = "retry"
            if base.execute("SELECT 1 FROM job_runs WHERE run = ?", (run,)).fetchone() is not None:
                run = RunId(random_uuid())  # The clock was set back, and the same moment is due again.
            began = JobRun(job.id, run, due or now, why, now)
            base.execute(_BEGIN, (began.run, job.id, format_moment(began.slot), began.reason, format_moment(now)))
            if began.reason != "manual":
                # A job that runs once is updated when its run ends.
                once = isinstance(current.schedule, At)
                next_at = None if once else next_slot(current.schedule, max(began.slot, now))
                _write(base, replace(current, served=max(current.served, began.slot), next_at=next_at))
            elif reason == "schedule":
                _write(base, plan_next(current, now))
        return began

    def end(self, run: JobRun, outcome: Outcome, summary: str) -> None:
        """Record the outcome of a run; a failed job is delayed."""
        now = self._clock.now()
        with self._database.change(durable=True) as base:
            if base.execute(_END, (outcome, format_moment(now), summary[:2_000], run.run)).rowcount != 1:
                return
            row = base.execute(_ONE, (run.job,)).fetchone()
            if row is None or run.reason == "manual":
                return
            job = _correct(base, decode_job(row["body"]), now)
            if outcome in ("ok", "skipped") and job.delete_after_run:
                base.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
                return
            _write(base, after_run(job, now, ok=outcome in ("ok", "skipped")))

    def correct_times(self) -> int:
        """Correct the times that a clock wrote that was ahead, and plan these jobs again; return how many."""
        now = self._clock.now()
        ahead = [job.id for job in self.all() if has_times_ahead(job, now)]
        for job in ahead:  # each in its own transaction, because other processes wait during one
            with self._database.change() as base:
                row = base.execute(_ONE, (job,)).fetchone()
                if row is not None:
                    _write(base, _correct(base, decode_job(row["body"]), now))
        with self._database.change() as base:
            for statement in (_CORRECT_STARTS, _CORRECT_ENDS):
                base.execute(statement, (format_moment(now), format_moment(now + MIN_JUMP)))
        return len(ahead)

    def add_remark(self, run: JobRun, text: str) -> None:
        """Append a remark to the summary of a run."""
        with self._database.change() as base:
            base.execute(_REMARK, ("\n", text[:500], run.run))

    def runs(self, job: str, limit: int = 20) -> tuple[JobRun, ...]:
        """Return the latest runs of a job, newest first."""
        return tuple(map(_read_run, self._database.read(_RUNS, (job, limit))))

    def unfinished(self) -> tuple[JobRun, ...]:
        """Return the runs that were started and not ended, by this or a crashed process."""
        return tuple(map(_read_run, self._database.read(_UNFINISHED)))

    def forget_old_runs(self) -> None:
        with self._database.change() as base:
            base.execute(_FORGET_RUNS, (format_moment(self._clock.now() - KEEP_RUNS),))


def _write(base: StateChange, job: Job) -> None:
    next_at = format_moment(job.next_at) if job.next_at else None
    base.execute(_KEEP, (job.id, job.agent, encode_job(job), job.enabled, next_at))


def _correct(base: StateChange, job: Job, now: datetime) -> Job:
    """Return the job without the times of a clock that was ahead, planned from now; the same object if it has none.

    A slot that already ran is not repeated: `JobStore.begin` finds its run. If the next slot of an interval already
    ran, its slots are counted from now on instead, so that the job does not wait until the clock is there again.
    """
    if not has_times_ahead(job, now):
        return job
    if isinstance(job.schedule, At):
        return replace(job, next_at=latest_next_run(job, now))
    corrected = replace(job, created_at=min(job.created_at, now))
    if isinstance(job.schedule, Every):
        interval, anchor = job.schedule.interval, job.schedule.anchor
        if anchor > now:
            anchor += (now - anchor) // interval * interval
        counted = replace(corrected, schedule=Every(interval, anchor), served=min(job.served, now))
        corrected = _count_from_now(base, counted, now)
    elif job.served > now:
        # A slot that passed while the clock was ahead is still due.
        (last,) = base.execute(_LAST_SLOT, (job.id, format_moment(now))).fetchone()
        is_new = now - KEEP_RUNS < job.created_at <= now
        corrected = replace(corrected, served=parse_moment(last) if last else job.created_at if is_new else now)
    if job.failures:
        return replace(corrected, next_at=latest_next_run(corrected, now))
    return plan_next(corrected, now)


def _count_from_now(base: StateChange, job: Job, now: datetime) -> Job:
    """Return the job with its interval counted from now, if the next slot of the interval already ran."""
    if not isinstance(job.schedule, Every):
        return job
    anchors = (job.schedule.anchor, now, now - timedelta(microseconds=1))
    schedules = [Every(job.schedule.interval, anchor) for anchor in anchors]
    following = ((schedule, next_slot(schedule, now)) for schedule in schedules)
    free = (schedule for schedule, slot in following if slot is not None and not _has_run(base, job, slot))
    return replace(job, schedule=next(free, schedules[-1]))


def _has_run(base: StateChange, job: Job, slot: datetime) -> bool:
    return bool(base.execute(_RAN, (job.id, format_moment(slot))).fetchone()[0])


def _run_row(run: JobRun) -> tuple[Value, ...]:
    ended = format_moment(run.ended_at or run.started_at)
    times = format_moment(run.slot), run.reason, format_moment(run.started_at)
    return run.run, run.job, *times, run.outcome, run.summary, ended


def _read_run(row: Row) -> JobRun:
    return JobRun(
        row["job"],
        RunId(row["run"]),
        parse_moment(row["slot"]),
        row["reason"],
        parse_moment(row["started_at"]),
        row["outcome"],
        parse_moment(row["ended_at"]) if row["ended_at"] else None,
        row["summary"],
    )
