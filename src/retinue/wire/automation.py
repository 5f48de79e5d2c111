"""What happens by itself: jobs, heartbeats and sub-agents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope

JobName = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class OfJob(Params):
    """A job by its id or name."""

    job: JobName


class AddJob(OfAgent):
    """A job as `retinue cron add` takes it: name, message, one of at, every and cron, and the rest."""

    fields: dict[str, Any]


class EditJob(OfJob):
    """What changes about a job; the rest stays."""

    fields: dict[str, Any] = Field(default_factory=dict)
    enabled: bool | None = None


class Jobs(Wire):
    jobs: list[dict[str, Any]]


class Job(Wire):
    job: dict[str, Any]


class JobRuns(Wire):
    runs: list[dict[str, Any]]


class Beats(Wire):
    """Heartbeats, newest first."""

    beats: list[dict[str, Any]]


class Beat(Wire):
    beat: dict[str, Any]


class OfChild(Params):
    """A sub-agent by its run id."""

    run_id: Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Children(Wire):
    """Sub-agents, newest first."""

    subagents: list[dict[str, Any]]


class Child(Wire):
    subagent: dict[str, Any]


CRON_LIST = Method("cron.list", Scope.READ, OfAgent, Jobs, "All jobs, or those of one agent.")
CRON_ADD = Method("cron.add", Scope.ADMIN, AddJob, Job, "Add a job.", changes=True)
CRON_EDIT = Method("cron.edit", Scope.ADMIN, EditJob, Job, "Change, pause or resume a job.", changes=True)
CRON_REMOVE = Method("cron.remove", Scope.ADMIN, OfJob, Done, "Remove a job.", changes=True)
CRON_RUN = Method("cron.run", Scope.ADMIN, OfJob, Done, "Run a job now, besides its schedule.", changes=True)
CRON_RUNS = Method("cron.runs", Scope.READ, OfJob, JobRuns, "The latest runs of a job.")
HEARTBEAT_LOG = Method("heartbeat.log", Scope.READ, OfAgent, Beats, "The latest heartbeats and what came of them.")
HEARTBEAT_RUN = Method("heartbeat.run", Scope.ADMIN, OfAgent, Beat, "Wake an agent now.", changes=True)
SUBAGENTS_LIST = Method("subagents.list", Scope.READ, Nothing, Children, "Sub-agents and what became of them.")
SUBAGENTS_GET = Method("subagents.get", Scope.READ, OfChild, Child, "A sub-agent and its result.")
SUBAGENTS_CANCEL = Method("subagents.cancel", Scope.WRITE, OfChild, Child, "End a sub-agent.", changes=True)

METHODS = (
    *(CRON_LIST, CRON_ADD, CRON_EDIT, CRON_REMOVE, CRON_RUN, CRON_RUNS),
    *(HEARTBEAT_LOG, HEARTBEAT_RUN),
    *(SUBAGENTS_LIST, SUBAGENTS_GET, SUBAGENTS_CANCEL),
)
