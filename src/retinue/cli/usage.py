"""`retinue usage`: the tokens and costs of model calls, summed up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation, print_store_notes, table

if TYPE_CHECKING:
    from retinue.core.messages import Usage
    from retinue.sessions.usage import UsageGrouping, UsageRecord

HEADER = ("read", "cached", "written", "cost")


@click.command(cls=Command)
@click.option(
    "--by",
    type=click.Choice(["day", "agent", "model", "source", "session", "job"]),
    default="day",
    show_default=True,
    help="How to group model calls.",
)
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 3_660),
    default=30,
    show_default=True,
    help="Only calls of the last N days.",
)
@click.option("--agent", metavar="ID", help="Only calls of this agent.")
@pass_invocation
def usage(invocation: Invocation, by: UsageGrouping, days: int, agent: str | None) -> None:
    """Archived sessions, sub-agents, jobs and summaries are included. Days are those of the user's time zone."""
    from datetime import timedelta

    from retinue.runtime.agents.prompting import time_zone
    from retinue.runtime.agents.workspace import open_sessions
    from retinue.sessions.usage import group_of, group_usage, sum_usage

    home = invocation.load_home()
    since = home.clock.now() - timedelta(days=days)
    zone = time_zone(home)
    records: list[UsageRecord] = []
    for each in (home.agent_id(agent),) if agent else home.config.agents.ids:
        store = open_sessions(home, each)
        records += store.usage(since) if store.exists else ()
        print_store_notes(invocation, store)
    sums = group_usage(records, lambda record: group_of(record, by, zone))
    groups = sorted(sums.items()) if by == "day" else sorted(sums.items(), key=lambda item: -item[1].total)
    total = sum_usage(records)
    invocation.show(
        {
            "by": by,
            "since": since.isoformat(),
            "timezone": zone.key,
            "total": _describe(total),
            "groups": [{by: name, **_describe(found)} for name, found in groups],
        },
        lambda: (
            table([*(_row(name, found) for name, found in groups), _row("total", total)], header=(by, *HEADER))
            if groups
            else f"No model was called in the last {days} days."
        ),
    )


def _describe(found: Usage) -> dict[str, Any]:
    return {
        "input": found.input,
        "output": found.output,
        "cacheRead": found.cache_read,
        "cacheWrite": found.cache_write,
        "total": found.total,
        "cost": found.cost,
    }


def _row(name: str, found: Usage) -> tuple[str, ...]:
    return (name, f"{found.prompt:,}", f"{found.cache_read:,}", f"{found.output:,}", f"${found.cost:.4f}")
