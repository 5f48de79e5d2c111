"""`retinue cron`: scheduled jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.formatting import format_time

if TYPE_CHECKING:
    from retinue.automation.job_fields import JobFields
    from retinue.automation.jobs import Job, JobRun, JobStore
    from retinue.runtime.home import Home

F = TypeVar("F", bound=Callable[..., Any])

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
        invocation.show([describe_job(job) for job in jobs], lambda: _format_jobs(jobs))


@cron.command()
@click.option("--agent", "agent_id", metavar="ID", help="Agent that runs the job.")
@_takes_fields
@pass_invocation
def add(invocation: Invocation, /, agent_id: str | None, **fields: Any) -> None:
    """Add a job, for example: retinue cron add --cron '0 8 * * 1-5' -m 'Sum up my calendar for today.'"""
    from retinue.automation.job_fields import draft_job

    with _opened(invocation) as (home, book):
        draft = draft_job(_read(fields), home.agent_id(agent_id), home.clock.now(), _zone(home))
        _show_job(invocation, book.add(draft), "Added")


@cron.command()
@click.argument("job")
@_takes_fields
@pass_invocation
def edit(invocation: Invocation, /, job: str, **fields: Any) -> None:
    """Change a job; options that are not given keep their value."""
    from retinue.automation.job_fields import revise_job

    with _opened(invocation) as (home, book):
        revised = revise_job(book.get(job), _read(fields), home.clock.now(), _zone(home))
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


def _read(fields: dict[str, Any]) -> JobFields:
    from retinue.automation.job_fields import JobFields

    return JobFields(**fields)


def _zone(home: Home) -> str:
    from retinue.runtime.automation.jobs import zone_of

    return zone_of(home)


def _show_job(invocation: Invocation, job: Job, what: str) -> None:
    from retinue.automation.jobs import describe_job

    when = f"next at {job.next_at.astimezone():%Y-%m-%d %H:%M %Z}" if job.next_at else "does not run"
    invocation.show(describe_job(job), f"{what} {job.id} ({job.name}): {job.schedule}, {when}.")


def _format_jobs(jobs: list[Job]) -> str:
    if not jobs:
        return "There are no jobs. See `retinue cron add --help`."
    rows = [
        (job.id, job.name[:40], job.agent, job.schedule, format_time(job.next_at) if job.next_at else "-")
        for job in jobs
    ]
    return table(rows, header=("id", "name", "agent", "when", "next"))


def _format_runs(listed: tuple[JobRun, ...]) -> str:
    rows = [
        (format_time(run.started_at), run.outcome, run.reason, " ".join(run.summary.split())[:80]) for run in listed
    ]
    return table(rows)
