"""The job runner: submits due jobs as messages, records their outcome and delivers it.

A run is submitted under its own idempotency key, so that a run interrupted by a crash is submitted again and answered
only once. The functions that submit messages and wait for answers are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from retinue.automation.jobs import DeliveryMode, Job, JobRun, JobStore
from retinue.core.clock import Clock, ClockWatch, derived_uuid, format_moment, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, StorageError, run_logged
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId
from retinue.core.model import ReasoningEffort
from retinue.security.untrusted_text import literal

log = logging.getLogger(__name__)

MAX_SLEEP_SECONDS = 2.0
"""The runner checks at least this often, because another process may add a job and the clock may be set."""

WATCHDOG = timedelta(minutes=60)
"""The time limit of a run whose job has none."""

Submit = Callable[[Inbound, str], Awaitable[RunId]]
"""Submits a message under an idempotency key; the same key returns the same run."""

Outcome = Callable[[RunId, float], Awaitable[Outbound | None]]
"""Waits for the answer to a message; returns None after the given number of seconds."""

Stop = Callable[[Inbound], Awaitable[None]]
"""Stops the turn that answers a message."""

Deliver = Callable[[Job, Outbound], Awaitable[None]]
"""Delivers a job's answer."""

Note = Callable[[Inbound, str], None]
"""Stores a message for its agent's next heartbeat under an idempotency key; raises if heartbeats are off."""

WAITS = "Waiting for the next heartbeat."


class JobRunner(Struct):
    """Runs the jobs of a home; used by one process at a time."""

    store: JobStore
    submit: Submit
    outcome: Outcome
    stop: Stop
    deliver: Deliver
    note: Note
    clock: Clock
    max_concurrent: int = 1
    _running: dict[str, JobRun] = field(default_factory=dict)
    _poked: anyio.Event = field(default_factory=anyio.Event)
    _watch: ClockWatch | None = None
    """None until the times of the jobs were checked."""

    async def serve(self) -> None:
        """Run jobs until cancelled, first those that a previous process started."""
        async with anyio.create_task_group() as tasks:
            self.adopt(tasks)
            while True:
                self._poked = anyio.Event()
                try:
                    soonest = self.tick(tasks)
                except StorageError as error:
                    log.warning("Jobs cannot be read: %s", error)
                    soonest = None
                pause = (soonest - self.clock.now()).total_seconds() if soonest else MAX_SLEEP_SECONDS
                with anyio.move_on_after(min(max(pause, 0.0), MAX_SLEEP_SECONDS)):
                    await self._poked.wait()

    def poke(self) -> None:
        """Check for due jobs now, because a job was added, changed or ended."""
        self._poked.set()

    def adopt(self, tasks: TaskGroup) -> None:
        """Resume the runs that were started and not ended."""
        for run in self.store.unfinished():
            job = next((job for job in self.store.all() if job.id == run.job), None)
            if job is None:
                self.store.end(run, "interrupted", "The job was removed while it ran.")
            else:
                self._start(job, run, tasks)

    def tick(self, tasks: TaskGroup) -> datetime | None:
        """Start due jobs up to the concurrency limit; return when the next job is due."""
        if self._watch is None or self._watch.check() is not None:
            self._watch = None
            corrected = self.store.correct_times()
            self._watch = ClockWatch(self.clock)
            if corrected:
                log.warning("%d jobs had times of a clock that was ahead. Their next runs were corrected.", corrected)
        room = self.max_concurrent - len(self._running)
        for job in self.store.due(room + len(self._running)) if room > 0 else ():
            if job.id in self._running or len(self._running) >= self.max_concurrent:
                continue
            # The due time determines the run: a slot that a power failure made due again is finished, not repeated.
            due = format_moment(job.next_at) if job.next_at else random_uuid()
            run = self.store.begin(job, RunId(derived_uuid(f"cron:{job.id}:{due}")))
            if run is not None:
                self._start(job, run, tasks)
        return self.store.soonest() if len(self._running) < self.max_concurrent else None

    async def run_now(self, job: Job) -> JobRun:
        """Run a job now, independent of its schedule, and wait for the end."""
        run = self.store.begin(job, RunId(random_uuid()), "manual")
        if run is None:
            raise RetinueError(f"The job '{job.name}' does not exist anymore.")
        await self._run(job, run)
        return next((known for known in self.store.runs(job.id) if known.run == run.run), run)

    def _start(self, job: Job, run: JobRun, tasks: TaskGroup) -> None:
        self._running[job.id] = run

        async def run_and_release() -> None:
            try:
                await run_logged(f"the job {job.id}", self._run, job, run)
            finally:
                del self._running[job.id]
                self.poke()

        tasks.start_soon(run_and_release)

    async def _run(self, job: Job, run: JobRun) -> None:
        inbound = compose_message(job, run)
        try:
            if job.wake_mode == "next-heartbeat":
                self.note(inbound, f"cron:{run.run}")
                self.store.end(run, "ok", WAITS)
                return
            accepted = await self.submit(inbound, f"cron:{run.run}")
            limit = timedelta(seconds=job.timeout_seconds) if job.timeout_seconds else WATCHDOG
            answer = await self.outcome(accepted, limit.total_seconds())
            if answer is None:
                await self.stop(inbound)
                self.store.end(run, "failed", f"It took longer than {limit.total_seconds():g} s and was stopped.")
                return
            ok = answer.status is TurnStatus.OK
            self.store.end(run, "ok" if ok else "failed", answer.text if ok else answer.error or "The turn failed.")
        except RetinueError as error:
            log.warning("The job '%s' (%s) failed: %s", job.name, job.id, error)
            self.store.end(run, "failed", str(error))
            return
        if job.delivery.mode is not DeliveryMode.NONE and not answer.silent:
            try:
                await self.deliver(job, answer)
            except RetinueError as error:
                # The run itself succeeded, so its outcome does not change.
                log.warning("The answer of the job '%s' (%s) was not delivered: %s", job.name, job.id, error)
                self.store.add_remark(run, f"Not delivered: {error}")


def compose_message(job: Job, run: JobRun) -> Inbound:
    """Return the message of a job run; its first line says that it is scheduled, and for which time."""
    head = f"[Scheduled job {job.id} ({literal(job.name, 80)}), due {run.slot:%Y-%m-%d %H:%M} UTC]"
    return Inbound(
        text=f"{head}\n{job.message}",
        session=job.session_of(run.run),
        owner=job.created_by == "owner",
        channel="cron",
        source=Source.CRON,
        model=job.model,
        thinking=ReasoningEffort(job.thinking) if job.thinking else None,
        light_context=job.light_context,
    )
