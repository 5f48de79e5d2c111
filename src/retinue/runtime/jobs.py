"""Jobs wired to everything they need: the home's database, the sessions they speak in, and where answers go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import anyio.to_thread

from retinue.automation.cron import JobRunner
from retinue.automation.jobbook import JobBook
from retinue.automation.jobs import Job, Mode
from retinue.core.clock import random_id, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError
from retinue.core.keys import RunId, SessionKey
from retinue.runtime.foundation import Foundation
from retinue.runtime.runtime import Runtime
from retinue.runtime.switchboard import Switchboard, open_private_switchboard
from retinue.security.network import OPERATOR, Outgoing, fetch
from retinue.storage.database import DATABASE_NAME, Database

WEBHOOK_SECONDS = 30.0
WEBHOOK_BYTES = 65_536


@contextmanager
def open_job_book(foundation: Foundation) -> Iterator[JobBook]:
    """The jobs of a home, for somebody who runs none."""
    database = Database(foundation.home.path / DATABASE_NAME, durable=foundation.durable, newer="aside")
    try:
        yield JobBook(database, foundation.clock, random_id)
    finally:
        database.close()


def make_job_runner(runtime: Runtime, switchboard: Switchboard) -> JobRunner:
    """What runs the jobs of a home through a switchboard."""
    foundation = runtime.foundation

    async def submit(inbound: Inbound, key: str) -> RunId:
        return (await switchboard.submit(inbound, key)).run

    async def stop(inbound: Inbound) -> None:
        runtime.conversation(inbound.session).ask_to_stop()

    return JobRunner(
        JobBook(runtime.database, foundation.clock, random_id),
        submit,
        switchboard.wait,
        stop,
        Announcer(runtime).deliver,
        foundation.clock,
        foundation.config.cron.max_concurrent_runs,
    )


@asynccontextmanager
async def open_job_runner(runtime: Runtime) -> AsyncIterator[JobRunner]:
    """A runner in a process that serves nobody else, for one run by hand."""
    async with open_private_switchboard(runtime) as switchboard:
        yield make_job_runner(runtime, switchboard)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Brings what a job came to where the job says."""

    runtime: Runtime

    async def deliver(self, job: Job, answer: Outbound) -> None:
        if job.delivery.mode is Mode.WEBHOOK:
            await self._report(job, answer)
            return
        text = answer.text or f"The job '{job.name}' failed: {answer.error}"
        target = self._target(job)
        told = Inbound(f"[Scheduled job {job.name}]", target, owner=False, channel="cron", source=Source.CRON)
        self.runtime.inbox.post(told, replace(answer, run=RunId(random_uuid()), session=target, text=text, error=None))

    def _target(self, job: Job) -> SessionKey:
        """The chat that is named, else the one in which the owner spoke last."""
        if job.delivery.channel and job.delivery.to:
            return SessionKey.parse(f"agent:{job.agent}:{job.delivery.channel}:direct:{job.delivery.to}")
        return self.runtime.last_chat(job.agent)

    async def _report(self, job: Job, answer: Outbound) -> None:
        token = self.runtime.foundation.config.cron.webhook_token
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {await anyio.to_thread.run_sync(self.runtime.secrets.resolve, token)}"
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
