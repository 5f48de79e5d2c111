"""An agent's own jobs, as its cron tool uses them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.job_codec import describe_job, describe_run
from retinue.automation.job_fields import JobFields, draft_job, read_job_fields, revise_job
from retinue.automation.job_store import JobStore
from retinue.automation.jobs import Job, WakeMode
from retinue.automation.schedule import At
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.runtime.agents.prompting import machine_timezone
from retinue.runtime.home import Home
from retinue.toolkit.cron import Listed


def zone_of(home: Home) -> str:
    """Return the time zone of times without one."""
    return home.config.agents.defaults.user_timezone or machine_timezone(home) or "UTC"


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
        draft = draft_job(read, agent, self.home.clock.now(), zone_of(self.home), by="agent")
        return describe_job(self.store.add(draft))

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        revised = revise_job(self._own(agent, job), _read_own(fields), self.home.clock.now(), zone_of(self.home))
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
        revised = revise_job(job, fields, self.home.clock.now(), zone_of(self.home))
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
