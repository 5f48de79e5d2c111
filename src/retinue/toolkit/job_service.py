"""The job service that the cron tool uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from retinue.core.keys import AgentId

Listed = list[dict[str, Any]]


class JobService(Protocol):
    """The jobs of an agent; every method raises `UsageError` for invalid or unknown jobs."""

    def list(self, agent: AgentId) -> Listed: ...

    def add(self, agent: AgentId, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def switch(self, agent: AgentId, job: str, *, on: bool) -> dict[str, Any]: ...

    def run(self, agent: AgentId, job: str) -> dict[str, Any]:
        """Run a job soon, in addition to its schedule."""
        ...

    def wake(self, agent: AgentId, text: str, mode: Literal["now", "next-heartbeat"]) -> dict[str, Any]:
        """Add an event to the agent's main session, processed now or with its next heartbeat."""
        ...

    def remove(self, agent: AgentId, job: str) -> dict[str, Any]: ...

    def runs(self, agent: AgentId, job: str) -> Listed: ...


OpenJobs = Callable[[], JobService]
"""Returns the service after the runtime has been opened."""
