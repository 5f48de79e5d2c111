"""An agent's own jobs, as its cron tool sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from retinue.automation.drafting import draft_job, read_fields, revise_job
from retinue.automation.job_codec import describe_job, describe_run
from retinue.automation.jobbook import JobBook
from retinue.automation.jobs import Job
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.runtime.foundation import Foundation
from retinue.runtime.prompting import machine_timezone
from retinue.toolkit.jobdesk import Listed


def zone_of(foundation: Foundation) -> str:
    """The time zone that people mean who name none."""
    return foundation.config.agents.defaults.user_timezone or machine_timezone(foundation) or "UTC"


@dataclass(frozen=True, slots=True)
class AgentJobs:
    """The jobs that one agent may see and change: its own. What an agent adds is marked as the agent's."""

    foundation: Foundation
    book: JobBook

    def list(self, agent: AgentId) -> Listed:
        return [describe_job(job) for job in self.book.all() if job.agent == agent]

    def add(self, agent: AgentId, fields: Mapping[str, Any]) -> dict[str, Any]:
        draft = draft_job(read_fields(fields), agent, self.foundation.clock.now(), zone_of(self.foundation), by="agent")
        return describe_job(self.book.add(draft))

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        revised = revise_job(
            self._own(agent, job), read_fields(fields), self.foundation.clock.now(), zone_of(self.foundation)
        )
        return describe_job(self.book.change(revised))

    def switch(self, agent: AgentId, job: str, *, on: bool) -> dict[str, Any]:
        return describe_job(self.book.change(replace(self._own(agent, job), enabled=on)))

    def remove(self, agent: AgentId, job: str) -> dict[str, Any]:
        found = self._own(agent, job)
        self.book.remove(found.id)
        return {"removed": found.id}

    def runs(self, agent: AgentId, job: str) -> Listed:
        return [describe_run(run) for run in self.book.runs(self._own(agent, job).id)]

    def _own(self, agent: AgentId, job: str) -> Job:
        found = self.book.get(job)
        if found.agent != agent:
            raise UsageError(f"There is no job '{job}' of this agent.")
        return found
