"""`retinue heartbeat`: when agents wake up by themselves, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table
from retinue.cli.wording import spell_time

if TYPE_CHECKING:
    from retinue.automation.wake_log import WakeRecord
    from retinue.core.keys import AgentId
    from retinue.runtime.foundation import Foundation


@click.group(cls=Group)
def heartbeat() -> None:
    """See when agents wake up by themselves. Hearts beat while the gateway runs."""


@heartbeat.command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show every agent's heartbeat: how often, when next, and the last one."""
    import anyio

    from retinue.runtime.foundation import lay_foundation

    found = anyio.run(_status, lay_foundation(invocation.home))
    invocation.show(found, lambda: table(map(_spell, found), header=("agent", "every", "next", "last")))


@heartbeat.command()
@click.option("--agent", "agent_id", metavar="ID", help="Which agent (default: the default one).")
@pass_invocation
def run(invocation: Invocation, agent_id: str | None) -> None:
    """Wake an agent now, and tell what came of it."""
    import anyio

    from retinue.automation.wake_log import describe_wake
    from retinue.runtime.foundation import lay_foundation

    foundation = lay_foundation(invocation.home)
    beat = anyio.run(_run, foundation, foundation.agent_id(agent_id))
    invocation.show(describe_wake(beat), f"{beat.outcome}: {beat.detail}" if beat.detail else beat.outcome)
    if beat.outcome == "failed":
        raise click.exceptions.Exit(1)


@heartbeat.command("log")
@click.option("--agent", "agent_id", metavar="ID", help="Only this agent's.")
@click.option("--limit", default=20, show_default=True, help="How many.")
@pass_invocation
def log_(invocation: Invocation, agent_id: str | None, limit: int) -> None:
    """Show the latest heartbeats, newest first: why each came and what it did."""
    from retinue.automation.wake_log import WakeLog, describe_wake
    from retinue.runtime.foundation import lay_foundation

    foundation = lay_foundation(invocation.home)
    agent = foundation.agent_id(agent_id) if agent_id else None
    with open_state(foundation) as database:
        found = WakeLog(database, foundation.clock).log(agent, limit)
    rows = [(spell_time(beat.at), beat.agent, beat.wake, beat.outcome, beat.detail[:60]) for beat in found]
    invocation.show([describe_wake(beat) for beat in found], lambda: table(rows) or "No heartbeat yet.")


def _spell(row: dict[str, Any]) -> tuple[str, ...]:
    moment, _, outcome = (row["last"] or "").partition(" ")
    last = f"{spell_time(datetime.fromisoformat(moment))} {outcome}" if moment else "-"
    following = spell_time(datetime.fromisoformat(row["next"])) if row["next"] else "never"
    return row["agent"], row["every"], following, last


async def _status(foundation: Foundation) -> list[dict[str, Any]]:
    from retinue.runtime.heartbeats import open_heart
    from retinue.runtime.runtime import open_runtime
    from retinue.settings import format_duration

    async with open_runtime(foundation) as runtime, open_heart(runtime) as heart:
        found = []
        for agent in heart.agents():
            settings = foundation.config.agents.resolve(agent).heartbeat
            due, last = heart.due(agent), heart.book.last(agent)
            found.append(
                {
                    "agent": agent,
                    "every": format_duration(settings.every) if settings.enabled else "off",
                    "next": due.isoformat(timespec="minutes") if due else None,
                    "last": f"{last.at.isoformat(timespec='minutes')} {last.outcome}" if last else None,
                }
            )
        return found


async def _run(foundation: Foundation, agent: AgentId) -> WakeRecord:
    from retinue.automation.heartbeat import WakeReason
    from retinue.runtime.heartbeats import open_heart
    from retinue.runtime.runtime import open_runtime

    async with open_runtime(foundation) as runtime, open_heart(runtime) as heart:
        return await heart.beat(agent, WakeReason.MANUAL)
