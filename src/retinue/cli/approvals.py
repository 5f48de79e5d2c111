"""`retinue approvals`: pending approval requests and allow rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from retinue.cli.common import Group, Invocation, pass_invocation

if TYPE_CHECKING:
    from retinue.core.approval import Verdict
    from retinue.runtime.approvals import Permissions
    from retinue.tools.approvals.broker import Approver
    from retinue.tools.approvals.store import Approval

MAX_SHOWN = 50


@click.group(cls=Group)
def approvals() -> None:
    pass


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help=f"Include the {MAX_SHOWN} most recent settled requests.")
@pass_invocation
def list_(invocation: Invocation, everything: bool) -> None:
    """List pending approval requests."""
    from retinue.tools.approvals.view import approval_json, format_approval

    with _opened(invocation) as permissions:
        rules, now = permissions.approvals, permissions.home.clock.now()
        found = rules.recent(MAX_SHOWN) if everything else rules.pending()
        invocation.show(
            [approval_json(item) for item in found],
            lambda: (
                "\n\n".join(format_approval(item, now) for item in found) or "There are no pending approval requests."
            ),
        )


@approvals.command()
@click.argument("id", required=False)
@click.option("--always", is_flag=True, help="Allow this exact command from now on.")
@click.option("--binding", metavar="HASH", help="Only if the request still has this binding (see `list --json`).")
@pass_invocation
def allow(invocation: Invocation, id: str | None, always: bool, binding: str | None) -> None:  # noqa: A002
    """Approve request ID (default: the only pending one)."""
    from retinue.core.approval import Verdict

    _decide(invocation, id, Verdict.ALLOW_ALWAYS if always else Verdict.ALLOW_ONCE, binding=binding)


@approvals.command()
@click.argument("id", required=False)
@click.option("--reason", metavar="TEXT", default="", help="Reason shown to the agent.")
@pass_invocation
def deny(invocation: Invocation, id: str | None, reason: str) -> None:  # noqa: A002
    """Deny request ID (default: the only pending one)."""
    from retinue.core.approval import Verdict

    _decide(invocation, id, Verdict.DENY, reason=reason)


@approvals.command()
@click.option(
    "--agent", "agent_id", metavar="ID", help="Only rules of this agent; with --add, the agent the rule applies to."
)
@click.option("--add", metavar="PATTERN", help="Run matching commands without approval, for example 'git diff *'.")
@click.option("--remove", metavar="ID", help="Remove a remembered rule.")
@pass_invocation
def rules(invocation: Invocation, agent_id: str | None, add: str | None, remove: str | None) -> None:
    """List the command patterns that run without approval, and when each was last used."""
    from retinue.core.errors import UsageError

    if add is not None and remove is not None:
        raise UsageError("Use --add or --remove, not both.")
    with _opened(invocation) as permissions:
        rules = permissions.rule_store
        agent = permissions.home.agent_id(agent_id) if agent_id or add else None
        if add is not None and agent is not None:
            added = rules.add(agent, add, _person(permissions))
            invocation.show({"added": added.to_json()}, f"Added {added}")
        elif remove is not None:
            removed = rules.remove(remove, _person(permissions), agent)
            invocation.show({"removed": removed.to_json()}, f"Removed {removed}")
        else:
            found = rules.listing(agent)
            none = "No command patterns are allowed. `retinue approvals rules --add PATTERN` adds one."
            invocation.show([rule.to_json() for rule in found], lambda: "\n".join(map(str, found)) or none)


def _decide(
    invocation: Invocation, code: str | None, verdict: Verdict, *, reason: str = "", binding: str | None = None
) -> None:
    from retinue.tools.approvals.broker import format_outcome
    from retinue.tools.approvals.view import approval_json

    with _opened(invocation) as permissions:
        chosen = code or _only(permissions).id
        decided = permissions.approvals.decide(chosen, verdict, _person(permissions), reason=reason, binding=binding)
        invocation.show(approval_json(decided), f"{decided.id} is {format_outcome(decided)}.")


def _only(permissions: Permissions) -> Approval:
    """Return the only pending request."""
    from retinue.core.errors import UsageError

    waiting = permissions.approvals.pending()
    if len(waiting) != 1:
        listed = "; ".join(f"{item.id} ({item.request.title})" for item in waiting)
        raise UsageError(
            f"Several requests are pending. Name one: {listed}."
            if waiting
            else "There are no pending approval requests."
        )
    return waiting[0]


def _person(permissions: Permissions) -> Approver:
    """Access to the home's files means ownership of the assistant."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "somebody"
    return permissions.approver(f"{name} at the command line")


@contextmanager
def _opened(invocation: Invocation) -> Iterator[Permissions]:
    from retinue.runtime.approvals import open_permissions

    home = invocation.load_home()
    with open_permissions(home) as permissions:
        yield permissions
