"""The jobs of a home with their database, the sessions they run in, and the delivery of answers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.job_runner import JobRunner
from retinue.automation.job_store import JobStore
from retinue.automation.jobs import DeliveryMode, Job
from retinue.automation.pending_notes import PendingNoteStore
from retinue.core.clock import random_id
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError
from retinue.core.keys import RunId, SessionKind
from retinue.runtime.automation.agent_jobs import require_heartbeat
from retinue.runtime.channels.notify_owner import find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.subagents.on_demand import serve_unwatched
from retinue.runtime.turns.sessions import Sessions
from retinue.security.fetch import Outgoing, fetch
from retinue.security.network import OPERATOR
from retinue.sessions.maintenance import MaintenancePlan, apply_plan
from retinue.storage.database import Database
from retinue.storage.lease import SessionLease

log = logging.getLogger(__name__)

WEBHOOK_SECONDS = 30.0
WEBHOOK_BYTES = 65_536


@contextmanager
def open_job_store(home: Home) -> Iterator[JobStore]:
    """Open the jobs of a home without running them."""
    database = Database(home.job_database, durable=home.durable, newer="aside")
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
        done = apply_plan(MaintenancePlan(old), store, partial(SessionLease, sessions.home.paths))
        for key, kept in done.archived.items():
            log.info("archived %s as %s", key, kept.name)


class Announcer(Struct, frozen=True):
    """Delivers the answers of jobs."""

    sessions: Sessions

    async def deliver(self, job: Job, answer: Outbound) -> None:
        if job.delivery.mode is DeliveryMode.WEBHOOK:
            await self._report(job, answer)
            return
        text = answer.text or f"The job '{job.name}' failed: {answer.error}"
        chat = find_chat(self.sessions, job.agent, job.delivery.channel, job.delivery.to)
        notify(self.sessions, chat, replace(answer, text=text), f"[Scheduled job {job.name}]", Source.CRON)

    async def _report(self, job: Job, answer: Outbound) -> None:
        token = self.sessions.home.config.cron.webhook_token
        headers = {"Content-Type": "application/json"}
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
