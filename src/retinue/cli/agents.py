"""`retinue agents` and `retinue subagents`: agents, bindings, routing of messages, and sub-agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, open_state, pass_invocation, table
from retinue.cli.terminal import format_time

if TYPE_CHECKING:
    from retinue.core.envelope import Origin
    from retinue.dispatch.settings import BindingMatch
    from retinue.dispatch.subagents import Child, SubagentStore
    from retinue.runtime.channels.routing import Destination
    from retinue.runtime.home import Home


@click.group(cls=Group)
def agents() -> None:
    pass


@agents.command("list")
@pass_invocation
def list_agents(invocation: Invocation) -> None:
    """List the agents."""
    from retinue.runtime.agents.workspace import identity_of, locate_workspace
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    config = home.config
    rows: list[dict[str, Any]] = []
    for agent in config.agents.ids:
        settings = config.agents.resolve(agent)
        identity = identity_of(home, agent)
        rows.append(
            {
                "id": agent,
                "default": settings.is_default,
                "name": identity.name,
                "emoji": identity.emoji,
                "creature": identity.creature,
                "vibe": identity.vibe,
                "theme": identity.theme,
                "avatar": identity.avatar,
                "model": settings.model.primary,
                "workspace": str(locate_workspace(home, agent)),
                "bindings": sum(binding.agent_id.strip().lower() == agent for binding in config.bindings),
            }
        )
    invocation.show(
        rows,
        lambda: table(
            [
                (
                    f"{'*' if row['default'] else ' '} {row['id']}",
                    " ".join(filter(None, (row["emoji"], row["name"]))),
                    row["creature"] or "",
                    row["model"] or "",
                    row["bindings"],
                )
                for row in rows
            ],
            header=("  agent", "name", "character", "model", "bindings"),
        ),
    )


@agents.command()
@pass_invocation
def bindings(invocation: Invocation) -> None:
    """List the bindings in the order in which they are tried, most specific first."""
    from retinue.dispatch.router import tier_of
    from retinue.runtime.home import load_home
    from retinue.structs.declare import to_plain

    config = load_home(invocation.home).config
    rows: list[dict[str, Any]] = [
        {
            "index": index,
            "agent": binding.agent_id,
            "tier": tier_of(binding.match).name.lower(),
            "match": to_plain(binding.match, omit_none=True, omit_defaults=True),
            "comment": binding.comment,
            "known": binding.agent_id.strip().lower() in config.agents.ids,
        }
        for index, binding in sorted(enumerate(config.bindings), key=lambda item: (tier_of(item[1].match), item[0]))
    ]
    spelled = [
        (
            f"[{row['index']}]",
            row["tier"],
            _format_match(config.bindings[row["index"]].match),
            f"{row['agent']}{'' if row['known'] else ' (no such agent)'}",
            row["comment"] or "",
        )
        for row in rows
    ]
    default = f"Everything else goes to '{config.agents.default_id}'."
    invocation.show(rows, "\n".join(filter(None, (table(spelled), default))))


def _format_match(match: BindingMatch) -> str:
    peer = match.peer
    facts = (
        ("channel", match.channel),
        ("account", match.account_id),
        ("peer", " ".join(filter(None, (peer.kind, peer.id))) if peer else None),
        ("guild", match.guild_id),
        ("team", match.team_id),
        ("roles", "|".join(match.roles)),
    )
    return ", ".join(f"{name} {value}" for name, value in facts if value)


@agents.command()
@click.option("--channel", required=True, metavar="NAME", help="Channel, for example http.")
@click.option("--account", default="default", metavar="ID", help="Account on the channel.")
@click.option("--kind", type=click.Choice(["direct", "group", "channel"]), default="direct", help="Kind of chat.")
@click.option("--peer", required=True, metavar="ID", help="Chat id: a person, a group or a channel.")
@click.option("--sender", metavar="ID", help="Sender id (default: the peer of a direct chat).")
@click.option("--guild", metavar="ID", help="Server (guild) id.")
@click.option("--team", metavar="ID", help="Workspace (team) id.")
@click.option("--thread", metavar="ID", help="Thread id.")
@click.option("--role", "roles", multiple=True, metavar="NAME", help="Role of the sender; may be repeated.")
@pass_invocation
def route(invocation: Invocation, /, kind: str, roles: tuple[str, ...], **facts: str | None) -> None:
    """Explain which agent and session a message is routed to."""
    from retinue.core.envelope import Origin, PeerKind
    from retinue.runtime.channels.routing import find_destination
    from retinue.runtime.home import load_home

    origin = Origin(
        channel=(facts["channel"] or "").lower(),
        account=facts["account"] or "",
        kind=PeerKind(kind),
        peer=facts["peer"] or "",
        guild=facts["guild"],
        team=facts["team"],
        thread=facts["thread"],
        sender=facts["sender"],
        roles=roles,
    )
    found = find_destination(load_home(invocation.home).config, origin)
    invocation.show(_describe(found), lambda: _format_route(found, origin))


def _describe(found: Destination) -> dict[str, Any]:
    return {
        "agent": found.route.agent,
        "sessionKey": found.session.text,
        "tier": found.route.tier.name.lower(),
        "binding": found.route.binding,
        "because": found.route.because,
        "owner": found.owner,
        "refused": found.refused,
        "mayCommand": found.may_command,
        "needsMention": found.needs_mention,
        "considered": [
            {"binding": each.index, "agent": each.agent, "fits": each.tier is not None, "why": each.why}
            for each in found.route.considered
        ],
    }


def _format_route(found: Destination, origin: Origin) -> str:
    which = "no binding" if found.route.binding is None else f"bindings[{found.route.binding}]"
    writer = "the owner" if found.owner else "not the owner"
    commands = "allowed" if found.may_command else "refused"
    facts = [
        ("agent", f"{found.route.agent} ({which}: {found.route.because})"),
        ("session", found.session),
        ("sender", f"{origin.writer or 'unknown'}, {writer}; commands {commands}"),
        ("answered", _format_admission(found)),
    ]
    tried = [(f"  [{each.index}]", each.agent, each.why) for each in found.route.considered]
    return "\n".join([table(facts), *(["bindings", table(tried)] if tried else [])])


def _format_admission(found: Destination) -> str:
    if found.refused is not None:
        return f"no: {found.refused}"
    return "when the agent is called" if found.needs_mention else "yes"


@click.group(cls=Group)
def subagents() -> None:
    pass


@subagents.command("list")
@click.option("--all", "everything", is_flag=True, help="Include sub-agents that ended.")
@pass_invocation
def list_subagents(invocation: Invocation, everything: bool) -> None:
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

    with _opened(invocation) as (home, book):
        child = book.get(run)
        ended = book.end(child.run, ChildState.CANCELLED, replace(child, text="It was cancelled."))
        home.lease(child.session).ask_to_stop()
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
