"""`retinue heartbeat`: heartbeat schedule and history."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table
from retinue.cli.formatting import format_time

if TYPE_CHECKING:
    from retinue.automation.heartbeat import WakeRecord
    from retinue.core.keys import AgentId
    from retinue.runtime.home import Home


@click.group(cls=Group)
def heartbeat() -> None:
    pass


@heartbeat.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show each agent's heartbeat: interval, next run and last result."""
    import anyio

    from retinue.runtime.home import load_home

    found = anyio.run(_status, load_home(invocation.home))
    invocation.show(found, lambda: table(map(_format, found), header=("agent", "every", "next", "last")))


@heartbeat.command()
@click.option("--agent", "agent_id", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def run(invocation: Invocation, agent_id: str | None) -> None:
    """Run a heartbeat now and print its result."""
    import anyio

    from retinue.automation.heartbeat import describe_wake
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    beat = anyio.run(_run, home, home.agent_id(agent_id))
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


def _format(row: dict[str, Any]) -> tuple[str, ...]:
    moment, _, outcome = (row["last"] or "").partition(" ")
    last = f"{format_time(datetime.fromisoformat(moment))} {outcome}" if moment else "-"
    following = format_time(datetime.fromisoformat(row["next"])) if row["next"] else "never"
    return row["agent"], row["every"], following, last


async def _status(home: Home) -> list[dict[str, Any]]:
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
                    "next": due.isoformat(timespec="minutes") if due else None,
                    "last": f"{last.at.isoformat(timespec='minutes')} {last.outcome}" if last else None,
                }
            )
        return found


async def _run(home: Home, agent: AgentId) -> WakeRecord:
    from retinue.automation.heartbeat import WakeReason
    from retinue.runtime.automation.heartbeats import open_heartbeats
    from retinue.runtime.open import open_runtime

    async with open_runtime(home) as runtime, open_heartbeats(runtime.dispatcher) as heartbeats:
        return await heartbeats.run_now(agent, WakeReason.MANUAL)
