"""The jobs of a home with their runner and delivery, and an agent's own jobs, as its cron tool uses them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.heartbeat import PendingNoteStore
from retinue.automation.job_fields import JobFields, draft_job, read_job_fields, revise_job
from retinue.automation.job_runner import JobRunner
from retinue.automation.jobs import DeliveryMode, Job, JobStore, WakeMode, describe_job, describe_run
from retinue.automation.schedule import At, describe_high_frequency, parse_every
from retinue.core.clock import random_id
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, UsageError
from retinue.core.keys import AgentId, RunId, SessionKind
from retinue.runtime.agents.prompting import default_timezone
from retinue.runtime.channels.send import find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.subagents.on_demand import serve_unwatched
from retinue.runtime.turns.sessions import Sessions
from retinue.security.fetch import Outgoing, fetch
from retinue.security.network import OPERATOR
from retinue.sessions.maintenance import MaintenancePlan, apply_plan
from retinue.sessions.usage import BACKGROUND_SPENT
from retinue.toolkit.cron import Listed

log = logging.getLogger(__name__)
WEBHOOK_SECONDS = 30.0
WEBHOOK_BYTES = 65_536


def require_heartbeat(home: Home, agent: AgentId) -> None:
    """Raise `UsageError` if an agent has no heartbeat that a job could wait for."""
    agents = home.config.agents
    heartbeat = agents.resolve(agent).heartbeat
    if agent not in agents.beating or not heartbeat.enabled or not heartbeat.every:
        raise UsageError(f"The agent '{agent}' has no heartbeat to wait for. Use the wake mode now.")


def _read_own(fields: Mapping[str, Any]) -> JobFields:
    """Read an agent's fields of a job; it may not set a webhook, because that request carries the owner's token."""
    read = read_job_fields(fields)
    if read.deliver == "webhook" or read.url is not None:
        raise UsageError("Only the owner can deliver a job to a URL, with `retinue cron`. Use `announce`.")
    return read


class AgentJobs(Struct, frozen=True):
    """The jobs of one agent. Jobs that it adds are marked as created by an agent."""

    home: Home
    store: JobStore

    def list(self, agent: AgentId) -> Listed:
        return [describe_job(job) for job in self.store.all() if job.agent == agent]

    def add(self, agent: AgentId, fields: Mapping[str, Any]) -> dict[str, Any]:
        read = _read_own(fields)
        if read.wake_mode == "next-heartbeat":
            require_heartbeat(self.home, agent)
        draft = draft_job(read, agent, self.home.clock.now(), default_timezone(self.home), by="agent")
        return describe_job(self.store.add(draft))

    def describe_high_frequency(self, fields: Mapping[str, Any]) -> str | None:
        every = _read_own(fields).every
        return describe_high_frequency(parse_every(every, self.home.clock.now())) if every is not None else None

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        revised = revise_job(
            self._own(agent, job), _read_own(fields), self.home.clock.now(), default_timezone(self.home)
        )
        return describe_job(self.store.change(revised))

    def switch(self, agent: AgentId, job: str, *, on: bool) -> dict[str, Any]:
        return describe_job(self.store.change(replace(self._own(agent, job), enabled=on)))

    def run(self, agent: AgentId, job: str) -> dict[str, Any]:
        return describe_job(self.store.make_due(self._own(agent, job)))

    def wake(self, agent: AgentId, text: str, mode: WakeMode) -> dict[str, Any]:
        if not text.strip():
            raise UsageError("`wake` needs `text`: the message for you.")
        if mode == "next-heartbeat":
            require_heartbeat(self.home, agent)
        soon = At(self.home.clock.now() + timedelta(seconds=1))
        job = Job("", "wake", agent, soon, "", target="main", delete_after_run=True, created_by="agent")
        fields = JobFields(message=text, wake_mode=mode)
        revised = revise_job(job, fields, self.home.clock.now(), default_timezone(self.home))
        return describe_job(self.store.add(revised))

    def remove(self, agent: AgentId, job: str) -> dict[str, Any]:
        found = self._own(agent, job)
        self.store.remove(found.id)
        return {"removed": found.id}

    def runs(self, agent: AgentId, job: str) -> Listed:
        return [describe_run(run) for run in self.store.runs(self._own(agent, job).id)]

    def _own(self, agent: AgentId, job: str) -> Job:
        found = self.store.get(job)
        if found.agent != agent:
            raise UsageError(f"There is no job '{job}' of this agent.")
        return found


@contextmanager
def open_job_store(home: Home) -> Iterator[JobStore]:
    """Open the jobs of a home without running them."""
    database = home.open_state(home.job_database)
    try:
        yield JobStore(database, home.clock, random_id)
    finally:
        database.close()


def make_job_runner(sessions: Sessions, dispatcher: Dispatcher) -> JobRunner:
    """Return the runner of a home's jobs, which submits them through a dispatcher."""
    home = sessions.home

    async def submit(inbound: Inbound, key: str) -> RunId:
        return (await dispatcher.submit(inbound, key)).run

    async def outcome(run: RunId, seconds: float) -> Outbound | None:
        answer = await dispatcher.wait(run, seconds)
        if answer is not None:
            sessions.services.inbox.delivered(
                run
            )  # The job delivers the answer itself; the session that it ran in already has it.
        return answer

    async def stop(inbound: Inbound) -> None:
        dispatcher.stop(inbound.session)

    def note(inbound: Inbound, token: str) -> None:
        agent = inbound.session.agent
        require_heartbeat(home, agent)
        # A heartbeat has the owner's rights; a job that an agent created does not.
        PendingNoteStore(sessions.services.database, home.clock).put(
            agent, inbound.text, foreign=not inbound.owner, token=token
        )

    return JobRunner(
        JobStore(sessions.services.job_database, home.clock, random_id),
        submit,
        outcome,
        stop,
        Announcer(sessions).deliver,
        note,
        home.clock,
        home.config.cron.max_concurrent_runs,
    )


@asynccontextmanager
async def open_job_runner(dispatcher: Dispatcher) -> AsyncIterator[JobRunner]:
    """Return a runner in a process without a gateway, for one manual run."""
    async with serve_unwatched(dispatcher):
        yield make_job_runner(dispatcher.sessions, dispatcher)


def archive_runs(sessions: Sessions, jobs: JobStore) -> None:
    """Delete old runs, and archive the sessions of isolated ones (`cron.sessionRetention`)."""
    jobs.forget_old_runs()
    retention = sessions.home.config.cron.session_retention
    if retention is False:
        return
    now = sessions.home.clock.now()
    running = {run.run for run in jobs.unfinished()}
    for agent in sessions.home.config.agents.ids:
        store = sessions.agent(agent).store
        old = tuple(
            session
            for session in store.list()
            if session.key.kind is SessionKind.CRON
            and now - session.updated_at > retention
            and session.key.text.partition(":run:")[2] not in ("", *running)
        )
        done = apply_plan(MaintenancePlan(old), store, sessions.home.lease)
        for key, archive in done.archived.items():
            log.info("archived %s as %s", key, archive.name)


class Announcer(Struct, frozen=True):
    """Delivers the answers of jobs."""

    sessions: Sessions

    async def deliver(self, job: Job, answer: Outbound) -> None:
        if (answer.error or "").startswith(BACKGROUND_SPENT):
            return  # The owner is told once a day, and not by every job.
        if job.delivery.mode is DeliveryMode.WEBHOOK:
            await self._report(job, answer)
            return
        text = answer.text or f"The job '{job.name}' failed: {answer.error}"
        chat = find_chat(self.sessions, job.agent, job.delivery.channel, job.delivery.to)
        notify(self.sessions, chat, replace(answer, text=text), f"[Scheduled job {job.name}]", Source.CRON)

    async def _report(self, job: Job, answer: Outbound) -> None:
        token = self.sessions.home.config.cron.webhook_token
        headers = {"Content-Type": "application/json", "Idempotency-Key": answer.run}
        if token is not None:
            headers["Authorization"] = (
                f"Bearer {await anyio.to_thread.run_sync(self.sessions.shared.secrets.resolve, token)}"
            )
        body = {
            "job": job.id,
            "name": job.name,
            "status": answer.status.value,
            "text": answer.text,
            "error": answer.error,
            "session": str(answer.session),
        }
        send = Outgoing("POST", headers, json.dumps(body).encode())
        found = await fetch(
            job.delivery.url or "", policy=OPERATOR, max_bytes=WEBHOOK_BYTES, timeout=WEBHOOK_SECONDS, send=send
        )
        if found.status >= 400:
            raise RetinueError(f"The webhook of the job '{job.name}' answered with status {found.status}.")
