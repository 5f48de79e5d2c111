"""What the cron tool needs of whoever keeps the jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from retinue.core.keys import AgentId

Listed = list[dict[str, Any]]


class JobDesk(Protocol):
    """An agent's own jobs; every method raises `UsageError` for what is wrong or not there."""

    def list(self, agent: AgentId) -> Listed: ...

    def add(self, agent: AgentId, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def switch(self, agent: AgentId, job: str, *, on: bool) -> dict[str, Any]: ...

    def run(self, agent: AgentId, job: str) -> dict[str, Any]:
        """Let a job run soon, besides its schedule."""
        ...

    def wake(self, agent: AgentId, text: str, mode: Literal["now", "next-heartbeat"]) -> dict[str, Any]:
        """Tell an agent something in its main session, soon or with its next heartbeat."""
        ...

    def remove(self, agent: AgentId, job: str) -> dict[str, Any]: ...

    def runs(self, agent: AgentId, job: str) -> Listed: ...


OpenJobs = Callable[[], JobDesk]
"""The desk, once the runtime is open."""
