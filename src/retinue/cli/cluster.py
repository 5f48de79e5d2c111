"""`retinue cluster`: the gateways that share a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.terminal import count, format_span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from retinue.storage.postgres.workers import ClusterStatus

MAX_SESSIONS = 20
"""How many sessions are listed; `--json` prints all."""


@click.group(cls=Group)
def cluster() -> None:
    """Several gateways with the same `storage.url` and team share sessions, messages and jobs."""


@cluster.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the gateways of the team, the sessions they work on, and what waits.

    With --json: `workers` are the running gateways, `leases` what each works on, `queues` the numbers of messages, and
    `lag` for how many seconds the oldest one has waited.
    """
    from msgspec import to_builtins

    from retinue.core.errors import UsageError
    from retinue.storage.postgres.workers import TeamProcesses

    home = invocation.load_home()
    team = home.team_storage
    if team is None:
        raise UsageError("This home does not share a database: `storage.url` is not set. docs/teams.md describes it.")
    found = TeamProcesses(team).status()
    invocation.show(to_builtins(found), lambda: format_cluster(found, home.clock.now()))


def format_cluster(found: ClusterStatus, now: datetime) -> str:
    """Format the gateways, the messages, the sessions with a running turn, and what is wrong."""
    parts = []
    if found.workers:
        rows = [
            [
                each.name,
                each.role,
                str(each.sessions),
                "yes" if each.automation else "no",
                format_span(max(0.0, (now - each.started_at).total_seconds())),
                each.version,
                each.address,
            ]
            for each in found.workers
        ]
        header = ("gateway", "role", "sessions", "jobs and channels", "runs for", "version", "address")
        parts.append(table(rows, header=header))
    waiting, answering = found.queues["waiting"], found.queues["claimed"]
    told = f"{count(waiting, 'message')} waiting, {answering} being answered."
    if waiting:
        told += f" The oldest has waited for {format_span(found.lag) if found.lag >= 1 else 'less than a second'}."
    parts.append(told)
    sessions = [[each.name, each.worker or "a command"] for each in found.leases if each.name.startswith("agent:")]
    if sessions:
        shown = table(sessions[:MAX_SESSIONS], header=("session", "worked on by"))
        more = len(sessions) - MAX_SESSIONS
        parts.append(f"{shown}\nand {more} more" if more > 0 else shown)
    problems = list(_find_problems(found))
    if problems:
        parts.append("\n".join(problems))
    return "\n\n".join(parts)


def _find_problems(found: ClusterStatus) -> Iterator[str]:
    """Yield what is missing, and what to do."""
    roles = {each.role for each in found.workers}
    if not roles:
        yield "No gateway is running. Start one: retinue gateway run"
        return
    if roles == {"front"}:
        yield "No gateway runs turns, so messages wait. Start one: retinue gateway run --role worker"
    if roles == {"worker"}:
        yield "No gateway runs jobs and channels. Start one: retinue gateway run --role front"
    elif not any(each.automation for each in found.workers):
        yield "No gateway runs jobs and channels at the moment. One takes them over within seconds."
    if len({each.version for each in found.workers}) > 1:
        yield "The gateways have different versions. Update the older ones, then restart them."
