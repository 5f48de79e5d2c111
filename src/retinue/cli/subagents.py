"""`retinue subagents`: what agents delegated, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table
from retinue.cli.wording import spell_time

if TYPE_CHECKING:
    from retinue.dispatch.childbook import ChildBook
    from retinue.dispatch.subagents import Child
    from retinue.runtime.foundation import Foundation


@click.group(cls=Group)
def subagents() -> None:
    """See what sub-agents do and did."""


@subagents.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that ended and were told.")
@pass_invocation
def list_(invocation: Invocation, everything: bool) -> None:
    """List sub-agents, the newest first."""
    from retinue.dispatch.childbook import describe_child

    with _opened(invocation) as (_, book):
        found = book.all() if everything else book.active()
        none = (
            "There was no sub-agent yet." if everything else "No sub-agent is at work. `--all` lists those that ended."
        )
        invocation.show([describe_child(child) for child in found], lambda: _spell(found) or none)


@subagents.command()
@click.argument("run")
@pass_invocation
def show(invocation: Invocation, run: str) -> None:
    """Show a sub-agent's task and result by its run id, whatever became of it."""
    from retinue.dispatch.childbook import describe_child

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
    """End a sub-agent that is at work; its parent is told."""
    from msgspec.structs import replace

    from retinue.dispatch.subagents import ChildState
    from retinue.storage.lease import SessionLease

    with _opened(invocation) as (foundation, book):
        child = book.get(run)
        ended = book.end(child.run, ChildState.CANCELLED, replace(child, text="It was cancelled."))
        SessionLease(foundation.home, child.session).ask_to_stop()
        invocation.show({"runId": ended.run, "state": ended.state.value}, f"{ended.run} is {ended.state}.")


@contextmanager
def _opened(invocation: Invocation) -> Iterator[tuple[Foundation, ChildBook]]:
    from retinue.dispatch.childbook import ChildBook

    foundation = invocation.lay_foundation()
    with open_state(foundation) as database:
        yield foundation, ChildBook(database, foundation.clock)


def _spell(children: tuple[Child, ...]) -> str:
    rows = [
        (
            child.run[:8],
            child.standing,
            spell_time(child.asked_at),
            child.session.agent,
            child.name[:60],
        )
        for child in children
    ]
    return table(rows, header=("run", "state", "started", "agent", "task")) if rows else ""
