"""`retinue cron`: jobs that an agent does at set times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.wording import spell_time

if TYPE_CHECKING:
    from retinue.automation.drafting import JobFields
    from retinue.automation.jobbook import JobBook
    from retinue.automation.jobs import Job, JobRun
    from retinue.runtime.foundation import Foundation

F = TypeVar("F", bound=Callable[..., Any])

_FIELDS = (
    click.option("--name", help="What the job is called."),
    click.option("--message", "-m", metavar="TEXT", help="What the agent is asked when it is time."),
    click.option("--at", metavar="TIME", help="Once: 2026-12-24T18:00, or a time from now such as 20m."),
    click.option("--every", metavar="INTERVAL", help="Again and again, such as 30m or 1d."),
    click.option("--cron", metavar="EXPRESSION", help="By a cron expression, such as '0 9 * * 1-5'."),
    click.option("--tz", metavar="ZONE", help="The time zone of --cron and --at (default: yours)."),
    click.option("--session", metavar="KEY", help="isolated (a fresh one for each run; default), main, or a session."),
    click.option("--deliver", type=click.Choice(["none", "announce", "webhook"]), help="What becomes of the answer."),
    click.option("--channel", help="Where an announcement goes (default: where you last wrote)."),
    click.option("--to", help="To whom it goes there."),
    click.option("--url", help="The address of a webhook."),
    click.option("--model", help="Another model for this job."),
    click.option("--thinking", help="How much the model reasons."),
    click.option("--timeout", "timeout_seconds", type=int, metavar="SECONDS", help="How long a run may take."),
    click.option(
        "--wake-mode",
        type=click.Choice(["now", "next-heartbeat"]),
        help="Whether a job of the session main has a turn of its own or waits for a heartbeat.",
    ),
    click.option("--delete-after-run/--keep-after-run", default=None, help="Whether the job is gone once it ran."),
)


def _takes_fields(command: F) -> F:
    for option in reversed(_FIELDS):
        command = option(command)
    return command


@click.group(cls=Group)
def cron() -> None:
    """Let agents do things at set times. Jobs run while the gateway runs."""


@cron.command("list")
@click.option("--agent", "agent_id", metavar="ID", help="Only this agent's.")
@pass_invocation
def list_(invocation: Invocation, agent_id: str | None) -> None:
    """List all jobs and when each runs next."""
    from retinue.automation.job_codec import describe_job

    with _opened(invocation) as (foundation, book):
        agent = foundation.agent_id(agent_id) if agent_id else None
        jobs = [job for job in book.all() if agent in (None, job.agent)]
        invocation.show([describe_job(job) for job in jobs], lambda: _spell_jobs(jobs))


@cron.command()
@click.option("--agent", "agent_id", metavar="ID", help="The agent that does it.")
@_takes_fields
@pass_invocation
def add(invocation: Invocation, /, agent_id: str | None, **fields: Any) -> None:
    """Add a job, as in: retinue cron add --cron '0 8 * * 1-5' -m 'Sum up my calendar for today.'"""
    from retinue.automation.drafting import draft_job

    with _opened(invocation) as (foundation, book):
        draft = draft_job(_read(fields), foundation.agent_id(agent_id), foundation.clock.now(), _zone(foundation))
        _show_job(invocation, book.add(draft), "Added")


@cron.command()
@click.argument("job")
@_takes_fields
@pass_invocation
def edit(invocation: Invocation, /, job: str, **fields: Any) -> None:
    """Change a job; what is not given stays."""
    from retinue.automation.drafting import revise_job

    with _opened(invocation) as (foundation, book):
        revised = revise_job(book.get(job), _read(fields), foundation.clock.now(), _zone(foundation))
        _show_job(invocation, book.change(revised), "Changed")


@cron.command()
@click.argument("job")
@pass_invocation
def remove(invocation: Invocation, job: str) -> None:
    """Remove a job; what it did stays in its sessions."""
    with _opened(invocation) as (_, book):
        found = book.get(job)
        book.remove(found.id)
        invocation.show({"removed": found.id}, f"Removed {found.id} ({found.name}).")


@cron.command()
@click.argument("job")
@click.option("--resume", is_flag=True, help="Let it run again.")
@pass_invocation
def pause(invocation: Invocation, job: str, resume: bool) -> None:
    """Keep a job from running until it is resumed."""
    from msgspec.structs import replace

    with _opened(invocation) as (_, book):
        _show_job(invocation, book.change(replace(book.get(job), enabled=resume)), "Resumed" if resume else "Paused")


@cron.command()
@click.argument("job")
@click.option("--limit", default=20, show_default=True, help="How many.")
@pass_invocation
def runs(invocation: Invocation, job: str, limit: int) -> None:
    """Show the latest runs of a job, newest first."""
    from retinue.automation.job_codec import describe_run

    with _opened(invocation) as (_, book):
        found = book.get(job)
        listed = book.runs(found.id, limit)
        none = f"{found.name} has not run yet."
        invocation.show([describe_run(run) for run in listed], lambda: _spell_runs(listed) or none)


@cron.command()
@click.argument("job")
@pass_invocation
def run(invocation: Invocation, job: str) -> None:
    """Run a job now, besides its schedule, and wait for the answer."""
    import anyio

    from retinue.automation.job_codec import describe_run

    with _opened(invocation) as (foundation, book):
        found = book.get(job)
    ended = anyio.run(_run_now, foundation, found)
    invocation.show(describe_run(ended), lambda: ended.summary or f"({ended.outcome})")
    if ended.outcome != "ok":
        raise click.exceptions.Exit(1)


async def _run_now(foundation: Foundation, job: Job) -> JobRun:
    from retinue.runtime.jobs import open_job_runner
    from retinue.runtime.runtime import open_runtime

    async with open_runtime(foundation) as runtime, open_job_runner(runtime) as runner:
        return await runner.run_now(job)


@contextmanager
def _opened(invocation: Invocation) -> Iterator[tuple[Foundation, JobBook]]:
    from retinue.runtime.foundation import lay_foundation
    from retinue.runtime.jobs import open_job_book

    foundation = lay_foundation(invocation.home)
    with open_job_book(foundation) as book:
        yield foundation, book


def _read(fields: dict[str, Any]) -> JobFields:
    from retinue.automation.drafting import JobFields

    return JobFields(**fields)


def _zone(foundation: Foundation) -> str:
    from retinue.runtime.agent_jobs import zone_of

    return zone_of(foundation)


def _show_job(invocation: Invocation, job: Job, what: str) -> None:
    from retinue.automation.job_codec import describe_job

    when = f"next at {job.next_at.astimezone():%Y-%m-%d %H:%M %Z}" if job.next_at else "does not run"
    invocation.show(describe_job(job), f"{what} {job.id} ({job.name}): {job.schedule}, {when}.")


def _spell_jobs(jobs: list[Job]) -> str:
    if not jobs:
        return "There are no jobs. `retinue cron add --help` shows how to add one."
    rows = [
        (job.id, job.name[:40], job.agent, job.schedule, spell_time(job.next_at) if job.next_at else "-")
        for job in jobs
    ]
    return table(rows, header=("id", "name", "agent", "when", "next"))


def _spell_runs(listed: tuple[JobRun, ...]) -> str:
    rows = [(spell_time(run.started_at), run.outcome, run.reason, " ".join(run.summary.split())[:80]) for run in listed]
    return table(rows)
