"""`retinue subagents`: list, show and cancel sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table
from retinue.cli.formatting import format_time

if TYPE_CHECKING:
    from retinue.dispatch.subagents import Child, SubagentStore
    from retinue.runtime.home import Home


@click.group(cls=Group)
def subagents() -> None:
    pass


@subagents.command("list")
@click.option("--all", "everything", is_flag=True, help="Include sub-agents that ended.")
@pass_invocation
def list_(invocation: Invocation, everything: bool) -> None:
    """List sub-agents, most recent first."""
    from retinue.dispatch.subagents import describe_child

    with _opened(invocation) as (_, book):
        found = book.all() if everything else book.active()
        none = (
            "There are no sub-agents yet."
            if everything
            else "No sub-agent is running. `--all` includes those that ended."
        )
        invocation.show([describe_child(child) for child in found], lambda: _format(found) or none)


@subagents.command()
@click.argument("run")
@pass_invocation
def show(invocation: Invocation, run: str) -> None:
    """Show the task and result of a sub-agent by its run id."""
    from retinue.dispatch.subagents import describe_child

    with _opened(invocation) as (_, book):
        child = book.get(run)
        invocation.show(
            describe_child(child),
            f"{child.run}: {child.name}\nSession {child.session}, started by {child.parent}, {child.standing}.\n\n"
            f"{child.text or '(no result yet)'}",
        )


@subagents.command()
@click.argument("run")
@pass_invocation
def cancel(invocation: Invocation, run: str) -> None:
    """Cancel a running sub-agent and notify its parent."""
    from msgspec.structs import replace

    from retinue.dispatch.subagents import ChildState
    from retinue.storage.lease import SessionLease

    with _opened(invocation) as (home, book):
        child = book.get(run)
        ended = book.end(child.run, ChildState.CANCELLED, replace(child, text="It was cancelled."))
        SessionLease(home.paths, child.session).ask_to_stop()
        invocation.show({"runId": ended.run, "state": ended.state.value}, f"{ended.run} is {ended.state}.")


@contextmanager
def _opened(invocation: Invocation) -> Iterator[tuple[Home, SubagentStore]]:
    from retinue.dispatch.subagents import SubagentStore

    home = invocation.load_home()
    with open_state(home) as database:
        yield home, SubagentStore(database, home.clock)


def _format(children: tuple[Child, ...]) -> str:
    rows = [
        (
            child.run[:8],
            child.standing,
            format_time(child.asked_at),
            child.session.agent,
            child.name[:60],
        )
        for child in children
    ]
    return table(rows, header=("run", "state", "started", "agent", "task")) if rows else ""
