"""Scheduled jobs, heartbeats, webhooks and hook folders."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Method, Nothing, Params, Time, Wire
from retinue.wire.protocol import Scope

JobName = Annotated[str, Meta(min_length=1, max_length=100)]


class OfJob(Params, frozen=True):
    """A job, by its id or name."""

    job: JobName


class AddJob(OfAgent, frozen=True, kw_only=True):
    """A job as `retinue cron add` takes it: name, message, one of at, every and cron, and options."""

    fields: dict[str, Any]


class PreviewSchedule(OfAgent, frozen=True, kw_only=True):
    """The fields of a job; only its schedule (`at`, `every` or `cron`, and `tz`) is read."""

    fields: dict[str, Any]


class ScheduleTimes(Wire, frozen=True):
    """The next times of a schedule, at most three."""

    times: list[Time]


class EditJob(OfJob, frozen=True):
    """The fields of a job to change; the others keep their values."""

    fields: dict[str, Any] = field(default_factory=dict)
    enabled: bool | None = None


class Jobs(Wire, frozen=True):
    """Jobs, each with its `lastRun`, which is null if it has not run."""

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


class WebhookRow(Wire, frozen=True):
    """A path that accepts requests: of the configuration, a preset, or created by an agent with the owner's consent.

    `ready` is false if it refuses every request; `reason` says why.
    """

    name: str
    path: str
    origin: Literal["configuration", "preset", "agent"]
    agent: str | None
    template: str
    ready: bool
    reason: str = ""
    created_at: Time | None = None
    used_at: Time | None = None


class WebhookList(Wire, frozen=True):
    """The webhooks, and the prefix of their paths. With `enabled` false, no request is accepted."""

    enabled: bool
    path: str
    webhooks: list[WebhookRow]


class OfWebhook(Params, frozen=True, kw_only=True):
    """A webhook that an agent created, by its name."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]


class WebhookToken(Wire, frozen=True):
    """The token of a webhook, which cannot be shown again."""

    name: str
    token: str


class HookRow(Wire, frozen=True):
    """A hook folder: a program that runs at events. `problems` say why it does not run although it is enabled."""

    name: str
    description: str
    origin: str
    folder: str
    events: list[str]
    enabled: bool
    problems: list[str]


class HookList(Wire, frozen=True):
    hooks: list[HookRow]


CRON_LIST = Method("cron.list", Scope.READ, OfAgent, Jobs, "List all jobs, or those of one agent.")
CRON_ADD = Method("cron.add", Scope.ADMIN, AddJob, Job, "Add a job.", changes=True)
CRON_PREVIEW = Method(
    "cron.preview", Scope.READ, PreviewSchedule, ScheduleTimes, "Return the next times of a schedule."
)
CRON_EDIT = Method("cron.edit", Scope.ADMIN, EditJob, Job, "Change, pause or resume a job.", changes=True)
CRON_REMOVE = Method("cron.remove", Scope.ADMIN, OfJob, Done, "Remove a job.", changes=True)
CRON_RUN = Method("cron.run", Scope.ADMIN, OfJob, Done, "Run a job now, in addition to its schedule.", changes=True)
CRON_RUNS = Method("cron.runs", Scope.READ, OfJob, JobRuns, "List the latest runs of a job.")
HEARTBEAT_LOG = Method("heartbeat.log", Scope.READ, OfAgent, Beats, "List the latest heartbeats and their results.")
HEARTBEAT_RUN = Method("heartbeat.run", Scope.ADMIN, OfAgent, Beat, "Run an agent's heartbeat now.", changes=True)

WEBHOOKS_LIST = Method("webhooks.list", Scope.ADMIN, Nothing, WebhookList, "List the paths that accept requests.")
WEBHOOKS_TOKEN = Method(
    "webhooks.token", Scope.ADMIN, OfWebhook, WebhookToken, "Create the token of an agent's webhook.", changes=True
)
WEBHOOKS_REVOKE = Method(
    "webhooks.revoke", Scope.ADMIN, OfWebhook, Done, "Delete a webhook that an agent created.", changes=True
)
HOOKS_LIST = Method("hooks.list", Scope.ADMIN, Nothing, HookList, "List the hook folders.")

METHODS = (
    *(CRON_LIST, CRON_ADD, CRON_PREVIEW, CRON_EDIT, CRON_REMOVE, CRON_RUN, CRON_RUNS),
    *(HEARTBEAT_LOG, HEARTBEAT_RUN),
    *(WEBHOOKS_LIST, WEBHOOKS_TOKEN, WEBHOOKS_REVOKE, HOOKS_LIST),
)
