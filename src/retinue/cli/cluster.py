"""`retinue cluster`: the gateways that share a PostgreSQL database."""

from __future__ import annotations

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.terminal import count, format_span


@click.group(cls=Group)
def cluster() -> None:
    """Several gateways with the same `storage.url` and team share sessions, messages and jobs."""


@cluster.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the gateways of the team, the sessions they work on, and what waits."""
    from msgspec import to_builtins

    from retinue.core.errors import UsageError
    from retinue.storage.postgres.workers import TeamProcesses

    team = invocation.load_home().team_storage
    if team is None:
        raise UsageError("This home does not share a database: `storage.url` is not set. docs/teams.md describes it.")
    found = TeamProcesses(team).status()
    rows = [
        [
            each.name,
            each.role,
            count(each.sessions, "session"),
            "runs jobs and channels" if each.automation else "",
            each.address,
        ]
        for each in found.workers
    ]
    waiting = f"{found.queues['waiting']} waiting, {found.queues['claimed']} being answered"
    if found.queues["waiting"]:
        waiting += f"; the oldest waits for {format_span(found.lag)}"
    header = ("gateway", "role", "work", "", "address")
    text = table(rows, header=header) if rows else "No gateway is running."
    invocation.show(to_builtins(found), f"{text}\n{waiting}")
