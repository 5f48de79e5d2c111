"""Scheduled jobs and heartbeats."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Method, Params, Wire
from retinue.wire.protocol import Scope

JobName = Annotated[str, Meta(min_length=1, max_length=100)]


class OfJob(Params, frozen=True):
    """A job, by its id or name."""

    job: JobName


class AddJob(OfAgent, frozen=True, kw_only=True):
    """A job as `retinue cron add` takes it: name, message, one of at, every and cron, and options."""

    fields: dict[str, Any]


class EditJob(OfJob, frozen=True):
    """The fields of a job to change; the others keep their values."""

    fields: dict[str, Any] = field(default_factory=dict)
    enabled: bool | None = None


class Jobs(Wire, frozen=True):
    jobs: list[dict[str, Any]]


class Job(Wire, frozen=True):
    job: dict[str, Any]


class JobRuns(Wire, frozen=True):
    runs: list[dict[str, Any]]


class Beats(Wire, frozen=True):
    """Heartbeats, newest first."""

    beats: list[dict[str, Any]]


class Beat(Wire, frozen=True):
    beat: dict[str, Any]


CRON_LIST = Method("cron.list", Scope.READ, OfAgent, Jobs, "List all jobs, or those of one agent.")
CRON_ADD = Method("cron.add", Scope.ADMIN, AddJob, Job, "Add a job.", changes=True)
CRON_EDIT = Method("cron.edit", Scope.ADMIN, EditJob, Job, "Change, pause or resume a job.", changes=True)
CRON_REMOVE = Method("cron.remove", Scope.ADMIN, OfJob, Done, "Remove a job.", changes=True)
CRON_RUN = Method("cron.run", Scope.ADMIN, OfJob, Done, "Run a job now, in addition to its schedule.", changes=True)
CRON_RUNS = Method("cron.runs", Scope.READ, OfJob, JobRuns, "List the latest runs of a job.")
HEARTBEAT_LOG = Method("heartbeat.log", Scope.READ, OfAgent, Beats, "List the latest heartbeats and their results.")
HEARTBEAT_RUN = Method("heartbeat.run", Scope.ADMIN, OfAgent, Beat, "Run an agent's heartbeat now.", changes=True)

METHODS = (
    *(CRON_LIST, CRON_ADD, CRON_EDIT, CRON_REMOVE, CRON_RUN, CRON_RUNS),
    *(HEARTBEAT_LOG, HEARTBEAT_RUN),
)
