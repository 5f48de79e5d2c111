"""`retinue cron`, `retinue heartbeat` and `retinue webhooks`: jobs, heartbeats, and webhooks that agents created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, ask_is_possible, open_state, pass_invocation, table
from retinue.cli.terminal import format_time

if TYPE_CHECKING:
    from retinue.automation.heartbeat import WakeRecord
    from retinue.automation.job_fields import JobFields
    from retinue.automation.jobs import Job, JobRun, JobStore
    from retinue.automation.webhooks import CreatedWebhookStore
    from retinue.core.keys import AgentId
    from retinue.runtime.home import Home


F = TypeVar("F", bound=Callable[..., Any])
_confirms_frequency = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask about a job that runs more often than once a minute."
)
_FIELDS = (
    click.option("--name", help="Name of the job."),
    click.option("--message", "-m", metavar="TEXT", help="Message sent to the agent at each run."),
    click.option("--at", metavar="TIME", help="Run once: 2026-12-24T18:00, or a delay such as 20m."),
    click.option("--every", metavar="INTERVAL", help="Run at an interval, such as 30m or 1d."),
    click.option("--cron", metavar="EXPRESSION", help="Cron expression, such as '0 9 * * 1-5'."),
    click.option("--tz", metavar="ZONE", help="Time zone of --cron and --at (default: local)."),
    click.option(
        "--session", metavar="KEY", help="Session: isolated (new for each run; default), main, or a session key."
    ),
    click.option("--deliver", type=click.Choice(["none", "announce", "webhook"]), help="How the answer is delivered."),
    click.option("--channel", help="Channel of an announcement (default: where you last wrote)."),
    click.option("--to", help="Recipient on that channel."),
    click.option("--url", help="URL of a webhook."),
    click.option("--model", help="Model for this job."),
    click.option("--thinking", help="Reasoning effort of the model."),
    click.option("--timeout", "timeout_seconds", type=int, metavar="SECONDS", help="Time limit of a run."),
    click.option(
        "--wake-mode",
        type=click.Choice(["now", "next-heartbeat"]),
        help="For session main: run a turn at once, or wait for the next heartbeat.",
    ),
    click.option(
        "--light-context/--full-context",
        default=None,
        help="For session isolated: a prompt without workspace files and skills.",
    ),
    click.option("--delete-after-run/--keep-after-run", default=None, help="Delete the job after it ran."),
)


def _takes_fields(command: F) -> F:
    for option in reversed(_FIELDS):
        command = option(command)
    return command


@click.group(cls=Group)
def cron() -> None:
    pass


@cron.command("list")
@click.option("--agent", "agent_id", metavar="ID", help="Only jobs of this agent.")
@pass_invocation
def list_(invocation: Invocation, agent_id: str | None) -> None:
    """List jobs and their next run."""
    from retinue.automation.jobs import describe_job

    with _opened(invocation) as (home, book):
        agent = home.agent_id(agent_id) if agent_id else None
        jobs = [job for job in book.all() if agent in (None, job.agent)]
        invocation.show([describe_job(job) for job in jobs], lambda: _format_jobs(jobs, home.clock.now()))


@cron.command()
@click.option("--agent", "agent_id", metavar="ID", help="Agent that runs the job.")
@_confirms_frequency
@_takes_fields
@pass_invocation
def add(invocation: Invocation, /, agent_id: str | None, yes: bool, **fields: Any) -> None:
    """Add a job, for example: retinue cron add --cron '0 8 * * 1-5' -m 'Sum up my calendar for today.'"""
    from retinue.automation.job_fields import draft_job

    with _opened(invocation) as (home, book):
        draft = draft_job(_read(fields), home.agent_id(agent_id), home.clock.now(), _zone(home))
        _confirm_frequency(invocation, draft, yes=yes)
        _show_job(invocation, book.add(draft), "Added")


@cron.command()
@click.argument("job")
@_confirms_frequency
@_takes_fields
@pass_invocation
def edit(invocation: Invocation, /, job: str, yes: bool, **fields: Any) -> None:
    """Change a job; options that are not given keep their value."""
    from retinue.automation.job_fields import revise_job

    with _opened(invocation) as (home, book):
        before = book.get(job)
        revised = revise_job(before, _read(fields), home.clock.now(), _zone(home))
        _confirm_frequency(invocation, revised, yes=yes or revised.schedule == before.schedule)
        _show_job(invocation, book.change(revised), "Changed")


@cron.command()
@click.argument("job")
@pass_invocation
def remove(invocation: Invocation, job: str) -> None:
    """Remove a job; the sessions of its runs are kept."""
    with _opened(invocation) as (_, book):
        found = book.get(job)
        book.remove(found.id)
        invocation.show({"removed": found.id}, f"Removed {found.id} ({found.name}).")


@cron.command()
@click.argument("job")
@click.option("--resume", is_flag=True, help="Resume the job.")
@pass_invocation
def pause(invocation: Invocation, job: str, resume: bool) -> None:
    """Pause a job until it is resumed."""
    from msgspec.structs import replace

    with _opened(invocation) as (_, book):
        _show_job(invocation, book.change(replace(book.get(job), enabled=resume)), "Resumed" if resume else "Paused")


@cron.command()
@click.argument("job")
@click.option("--limit", default=20, show_default=True, help="Maximum number of entries.")
@pass_invocation
def runs(invocation: Invocation, job: str, limit: int) -> None:
    """Show the most recent runs of a job."""
    from retinue.automation.jobs import describe_run

    with _opened(invocation) as (_, book):
        found = book.get(job)
        listed = book.runs(found.id, limit)
        none = f"{found.name} has not run yet."
        invocation.show([describe_run(run) for run in listed], lambda: _format_runs(listed) or none)


@cron.command()
@click.argument("job")
@pass_invocation
def run(invocation: Invocation, job: str) -> None:
    """Run a job now, in addition to its schedule, and wait for the answer."""
    import anyio

    from retinue.automation.jobs import describe_run

    with _opened(invocation) as (home, book):
        found = book.get(job)
    ended = anyio.run(_run_now, home, found)
    invocation.show(describe_run(ended), lambda: ended.summary or f"({ended.outcome})")
    if ended.outcome != "ok":
        raise click.exceptions.Exit(1)


async def _run_now(home: Home, job: Job) -> JobRun:
    from retinue.runtime.automation.jobs import open_job_runner
    from retinue.runtime.open import open_runtime

    async with open_runtime(home) as runtime, open_job_runner(runtime.dispatcher) as runner:
        return await runner.run_now(job)


@contextmanager
def _opened(invocation: Invocation) -> Iterator[tuple[Home, JobStore]]:
    from retinue.runtime.automation.jobs import open_job_store
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    with open_job_store(home) as book:
        yield home, book


def _confirm_frequency(invocation: Invocation, job: Job, *, yes: bool) -> None:
    """Ask before a job gets a schedule of more than one run a minute."""
    from retinue.automation.schedule import describe_high_frequency
    from retinue.core.errors import UsageError

    often = describe_high_frequency(job.schedule)
    if yes or often is None:
        return
    if invocation.as_json or not ask_is_possible():
        raise UsageError(f"{often} Add --yes if that is meant, or choose an interval of at least a minute.")
    click.confirm(f"{often} Is that meant?", abort=True, err=True)


def _read(fields: dict[str, Any]) -> JobFields:
    from retinue.automation.job_fields import JobFields

    return JobFields(**fields)


def _zone(home: Home) -> str:
    from retinue.runtime.agents.prompting import default_timezone

    return default_timezone(home)


def _show_job(invocation: Invocation, job: Job, what: str) -> None:
    from retinue.automation.jobs import describe_job

    when = f"next at {job.next_at.astimezone():%Y-%m-%d %H:%M %Z}" if job.next_at else "does not run"
    invocation.show(describe_job(job), f"{what} {job.id} ({job.name}): {job.schedule}, {when}.")


def _format_jobs(jobs: list[Job], now: datetime) -> str:
    from retinue.automation.jobs import has_times_ahead

    if not jobs:
        return "There are no jobs. See `retinue cron add --help`."
    rows = [
        (job.id, job.name[:40], job.agent, job.schedule, format_time(job.next_at) if job.next_at else "-")
        for job in jobs
    ]
    listed = table(rows, header=("id", "name", "agent", "when", "next"))
    ahead = [job.name for job in jobs if has_times_ahead(job, now)]
    if not ahead:
        return listed
    return (
        f"{listed}\n\nA clock that was ahead planned {', '.join(ahead[:10])}. The gateway corrects this when it runs."
    )


def _format_runs(listed: tuple[JobRun, ...]) -> str:
    rows = [
        (format_time(run.started_at), run.outcome, run.reason, " ".join(run.summary.split())[:80]) for run in listed
    ]
    return table(rows)


@click.group(cls=Group)
def heartbeat() -> None:
    pass


@heartbeat.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show each agent's heartbeat: interval, next run and last result."""
    import anyio

    from retinue.runtime.home import load_home

    found = anyio.run(_list_heartbeats, load_home(invocation.home))
    invocation.show(found, lambda: table(map(_format_heartbeat, found), header=("agent", "every", "next", "last")))


@heartbeat.command("run")
@click.option("--agent", "agent_id", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def run_heartbeat(invocation: Invocation, agent_id: str | None) -> None:
    """Run a heartbeat now and print its result."""
    import anyio

    from retinue.automation.heartbeat import describe_wake
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    beat = anyio.run(_run_heartbeat, home, home.agent_id(agent_id))
    invocation.show(describe_wake(beat), f"{beat.outcome}: {beat.detail}" if beat.detail else beat.outcome)
    if beat.outcome == "failed":
        raise click.exceptions.Exit(1)


@heartbeat.command("log")
@click.option("--agent", "agent_id", metavar="ID", help="Only jobs of this agent.")
@click.option("--limit", default=20, show_default=True, help="Maximum number of entries.")
@pass_invocation
def log_(invocation: Invocation, agent_id: str | None, limit: int) -> None:
    """Show the most recent heartbeats with their reason and result."""
    from retinue.automation.heartbeat import WakeLog, describe_wake
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    agent = home.agent_id(agent_id) if agent_id else None
    with open_state(home) as database:
        found = WakeLog(database, home.clock).log(agent, limit)
    rows = [(format_time(beat.at), beat.agent, beat.wake, beat.outcome, beat.detail[:60]) for beat in found]
    invocation.show([describe_wake(beat) for beat in found], lambda: table(rows) or "There are no heartbeats yet.")


def _format_heartbeat(row: dict[str, Any]) -> tuple[str, ...]:
    moment, _, outcome = (row["last"] or "").partition(" ")
    last = f"{format_time(datetime.fromisoformat(moment))} {outcome}" if moment else "-"
    following = format_time(datetime.fromisoformat(row["next"])) if row["next"] else "never"
    every = f"{row['every']}, now {row['slowedTo']}: nothing to report" if row["slowedTo"] else row["every"]
    return row["agent"], every, following, last


async def _list_heartbeats(home: Home) -> list[dict[str, Any]]:
    from retinue.runtime.automation.heartbeats import open_heartbeats
    from retinue.runtime.open import open_runtime
    from retinue.settings import format_duration

    async with open_runtime(home) as runtime, open_heartbeats(runtime.dispatcher) as heartbeats:
        found = []
        for agent in heartbeats.agents():
            settings = home.config.agents.resolve(agent).heartbeat
            due, last = heartbeats.due(agent), heartbeats.wake_log.last(agent)
            found.append(
                {
                    "agent": agent,
                    "every": format_duration(settings.every) if settings.enabled else "off",
                    "slowedTo": format_duration(now) if (now := heartbeats.interval(agent)) > settings.every else None,
                    "next": due.isoformat(timespec="minutes") if due else None,
                    "last": f"{last.at.isoformat(timespec='minutes')} {last.outcome}" if last else None,
                }
            )
        return found


async def _run_heartbeat(home: Home, agent: AgentId) -> WakeRecord:
    from retinue.automation.heartbeat import WakeReason
    from retinue.runtime.automation.heartbeats import open_heartbeats
    from retinue.runtime.open import open_runtime

    async with open_runtime(home) as runtime, open_heartbeats(runtime.dispatcher) as heartbeats:
        return await heartbeats.run_now(agent, WakeReason.MANUAL)


@click.group(cls=Group)
def webhooks() -> None:
    """Webhooks of the configuration are under hooks.mappings."""


@contextmanager
def _created_webhooks(invocation: Invocation) -> Iterator[tuple[Home, CreatedWebhookStore]]:
    from retinue.automation.webhooks import CreatedWebhookStore

    home = invocation.load_home()
    with open_state(home) as database:
        yield home, CreatedWebhookStore(database, home.clock)


@webhooks.command("list")
@pass_invocation
def list_webhooks(invocation: Invocation) -> None:
    """List the webhooks that agents created."""
    with _created_webhooks(invocation) as (home, store):
        path = home.config.hooks.path.rstrip("/")
        rows: list[dict[str, Any]] = [
            {
                "name": hook.name,
                "path": f"{path}/{hook.name}",
                "agent": hook.agent,
                "messageTemplate": hook.template,
                "wakeMode": hook.wake_mode,
                "hasToken": hook.token_hash is not None,
                "createdAt": hook.created_at.isoformat(),
                "usedAt": hook.used_at.isoformat() if hook.used_at else None,
            }
            for hook in store.list()
        ]
    cells = [
        (row["name"], row["agent"], "yes" if row["hasToken"] else "no", (row["usedAt"] or "never")[:16]) for row in rows
    ]
    none = "No agent has created a webhook."
    invocation.show(rows, lambda: table(cells, header=("name", "agent", "token", "last used")) if rows else none)


@webhooks.command("token")
@click.argument("name")
@pass_invocation
def renew_webhook_token(invocation: Invocation, name: str) -> None:
    """Create the token of a webhook and print it. It cannot be shown again; an earlier one is no longer valid."""
    with _created_webhooks(invocation) as (home, store):
        _refuse_agent(home)
        token = store.renew_token(name)
        home.audit.record("webhook_token_created", "the command line", {"name": name})
    invocation.show({"name": name, "token": token}, token)


@webhooks.command("revoke")
@click.argument("name")
@pass_invocation
def revoke_webhook(invocation: Invocation, name: str) -> None:
    """Delete a webhook that an agent created; its token is no longer valid."""
    with _created_webhooks(invocation) as (home, store):
        _refuse_agent(home)
        revoked = store.revoke(name)
        home.audit.record("webhook_revoked", "the command line", {"name": name, "agent": revoked.agent})
    invocation.show({"name": name, "revoked": True}, f"The webhook '{name}' is deleted.")


def _refuse_agent(home: Home) -> None:
    from retinue.core.errors import UsageError

    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot manage webhooks. Do it yourself.")
