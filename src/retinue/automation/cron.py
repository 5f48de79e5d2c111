"""Running jobs: what is due is handed over as a message, and what came of it is kept and delivered.

A run is handed over under a key of its own, so that one which a crash cut short is handed over again and still answered
once. The runner knows how to submit a message and how to wait for its answer, not who does that.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from retinue.automation.jobbook import JobBook
from retinue.automation.jobs import Job, JobRun, Mode
from retinue.core.background import run_logged
from retinue.core.clock import Clock, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, StorageError
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId
from retinue.core.model import ReasoningEffort
from retinue.security.escaping import literal

log = logging.getLogger(__name__)

LONGEST_SLEEP = 2.0
"""Another process may add a job, and the clock may be set, while the runner sleeps: it looks again this often."""

WATCHDOG = timedelta(minutes=60)
"""How long a run without a time limit of its own is waited for."""

Submit = Callable[[Inbound, str], Awaitable[RunId]]
"""Accept a message under an idempotency key; the same key again gives the same run."""

Outcome = Callable[[RunId, float], Awaitable[Outbound | None]]
"""Wait for what became of a message; None where it takes longer than so many seconds."""

Stop = Callable[[Inbound], Awaitable[None]]
"""End the turn that answers a message."""

Deliver = Callable[[Job, Outbound], Awaitable[None]]
"""Bring a job's answer to where the job says."""

Note = Callable[[Inbound, str], None]
"""Keep a message for its agent's next heartbeat under an idempotency key; raises where there will be none."""

WAITS = "It waits for the next heartbeat."


class JobRunner(Struct):
    """Runs the jobs of a home; one process at a time does."""

    book: JobBook
    submit: Submit
    outcome: Outcome
    stop: Stop
    deliver: Deliver
    note: Note
    clock: Clock
    most_at_once: int = 1
    _running: dict[str, JobRun] = field(default_factory=dict)
    _poked: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self) -> None:
        """Run jobs until cancelled, first those that a process before this one had begun."""
        async with anyio.create_task_group() as tasks:
            self.adopt(tasks)
            while True:
                self._poked = anyio.Event()
                try:
                    soonest = self.tick(tasks)
                except StorageError as error:
                    log.warning("jobs cannot be read now: %s", error)
                    soonest = None
                pause = (soonest - self.clock.now()).total_seconds() if soonest else LONGEST_SLEEP
                with anyio.move_on_after(min(max(pause, 0.0), LONGEST_SLEEP)):
                    await self._poked.wait()

    def poke(self) -> None:
        """Look again now: a job was added, changed or ended."""
        self._poked.set()

    def adopt(self, tasks: TaskGroup) -> None:
        """Take up the runs that were begun and not ended."""
        for run in self.book.unfinished():
            job = next((job for job in self.book.all() if job.id == run.job), None)
            if job is None:
                self.book.end(run, "interrupted", "The job was removed while it ran.")
            else:
                self._start(job, run, tasks)

    def tick(self, tasks: TaskGroup) -> datetime | None:
        """Begin what is due, as far as there is room; returns when something is due next."""
        room = self.most_at_once - len(self._running)
        for job in self.book.due(room + len(self._running)) if room > 0 else ():
            if job.id in self._running or len(self._running) >= self.most_at_once:
                continue
            run = self.book.begin(job, RunId(random_uuid()))
            if run is not None:
                self._start(job, run, tasks)
        return self.book.soonest() if len(self._running) < self.most_at_once else None

    async def run_now(self, job: Job) -> JobRun:
        """Run a job because somebody asked for it, besides its schedule, and wait for the end."""
        run = self.book.begin(job, RunId(random_uuid()), "manual")
        if run is None:
            raise RetinueError(f"The job '{job.name}' is not there any more.")
        await self._see_through(job, run)
        return next((known for known in self.book.runs(job.id) if known.run == run.run), run)

    def _start(self, job: Job, run: JobRun, tasks: TaskGroup) -> None:
        self._running[job.id] = run

        async def see_through() -> None:
            try:
                await run_logged(f"the job {job.id}", self._see_through, job, run)
            finally:
                del self._running[job.id]
                self.poke()

        tasks.start_soon(see_through)

    async def _see_through(self, job: Job, run: JobRun) -> None:
        inbound = compose(job, run)
        try:
            if job.wake_mode == "next-heartbeat":
                self.note(inbound, f"cron:{run.run}")
                self.book.end(run, "ok", WAITS)
                return
            accepted = await self.submit(inbound, f"cron:{run.run}")
            limit = timedelta(seconds=job.timeout_seconds) if job.timeout_seconds else WATCHDOG
            answer = await self.outcome(accepted, limit.total_seconds())
            if answer is None:
                await self.stop(inbound)
                self.book.end(run, "failed", f"It took longer than {limit.total_seconds():g} s and was stopped.")
                return
            ok = answer.status is TurnStatus.OK
            self.book.end(run, "ok" if ok else "failed", answer.text if ok else answer.error or "It did not end well.")
        except RetinueError as error:
            log.warning("the job '%s' (%s) failed: %s", job.name, job.id, error)
            self.book.end(run, "failed", str(error))
            return
        if job.delivery.mode is not Mode.NONE and not answer.silent:
            await self._deliver(job, run, answer)

    async def _deliver(self, job: Job, run: JobRun, answer: Outbound) -> None:
        """Bring an answer where it belongs; where that fails the run stays what it is, and says so."""
        try:
            await self.deliver(job, answer)
        except RetinueError as error:
            log.warning("what the job '%s' (%s) came to was not delivered: %s", job.name, job.id, error)
            self.book.remark(run, f"Not delivered: {error}")


def compose(job: Job, run: JobRun) -> Inbound:
    """What the agent reads when a job runs: that nobody wrote it just now, and for when it was meant."""
    head = f"[Scheduled job {job.id} ({literal(job.name, 80)}), due {run.slot:%Y-%m-%d %H:%M} UTC]"
    return Inbound(
        text=f"{head}\n{job.message}",
        session=job.session_of(run.run),
        owner=job.created_by == "owner",
        channel="cron",
        source=Source.CRON,
        model=job.model,
        thinking=ReasoningEffort(job.thinking) if job.thinking else None,
    )
