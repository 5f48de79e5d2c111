"""`retinue members` and `retinue roles`: who belongs to the home's team, and what each member may do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.team_access import open_team
from retinue.cli.teams import read_hidden
from retinue.storage.auditlog import CLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.runtime.home import Home
    from retinue.runtime.inspect.matrix import Capability
    from retinue.teams.database import TeamDatabase
    from retinue.teams.members import TeamMember

ROLES = ("owner", "admin", "operator", "member", "viewer")
SERVICE_SCOPES = ("read", "write", "approve")


@click.group(cls=Group)
def members() -> None:
    """WHICH is the id or the login of a member."""


@click.group(cls=Group)
def roles() -> None:
    """A member has one role in the team, and may have others for single agents."""


@members.command("list")
@pass_invocation
def list_members(invocation: Invocation) -> None:
    """List members, service accounts and open invitations."""
    from retinue.teams.members import MemberStore

    home = invocation.load_home()
    with open_team(home) as database:
        store = MemberStore(database)
        found = [describe_member(member) for member in store.list()]
        invited = [
            {
                "id": each.id,
                "login": each.login,
                "role": each.role.value,
                "invitedBy": each.invited_by,
                "expiresAt": each.expires_at.isoformat(),
            }
            for each in store.invitations()
        ]

    def text() -> str:
        rows = [
            (row["id"], row["login"], row["role"], _format_agents(row["agents"]), _format_seen(row), row["state"])
            for row in found
        ]
        waiting = [(row["login"], row["role"], row["invitedBy"], row["expiresAt"][:16]) for row in invited]
        parts = [table(rows, header=("id", "login", "role", "for agents", "last seen", "state"))] if rows else []
        if waiting:
            parts.append(table(waiting, header=("invited", "role", "by", "until")))
        return "\n\n".join(parts) or "There are no members yet. Invite one: retinue members invite LOGIN --role owner"

    invocation.show({"members": found, "invitations": invited}, text)


@members.command()
@click.argument("login")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True, help="Role in the team.")
@pass_invocation
def invite(invocation: Invocation, login: str, role: str) -> None:
    """Invite the person with the e-mail address LOGIN, and print the invitation. It works once, for seven days."""
    from retinue.teams.members import MemberStore
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        made, text = MemberStore(database).invite(login, TeamRole(role), CLI, TeamRole.OWNER)
        _audit(home, "member_invited", login=made.login, role=role)
    address = home.config.teams.public_url
    link = f"{address.rstrip('/')}/#invitation={text}" if address else None
    data = {"id": made.id, "login": made.login, "role": role, "invitation": text, "link": link}
    invocation.show(data | {"expiresAt": made.expires_at.isoformat()}, link or text, exact=True)


@members.command()
@click.argument("which")
@pass_invocation
def deactivate(invocation: Invocation, which: str) -> None:
    """Deactivate a member. All connections are closed within two seconds, on every gateway of the team."""
    from retinue.teams.members import MemberStore
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        member = MemberStore(database).deactivate(which, TeamRole.OWNER)
        _audit(home, "member_deactivated", id=member.id, login=member.login)
    invocation.show(describe_member(member), f"Deactivated {member.login}.")


@members.command()
@click.argument("which")
@pass_invocation
def activate(invocation: Invocation, which: str) -> None:
    """Allow a deactivated member to sign in again."""
    from retinue.teams.members import MemberStore
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        member = MemberStore(database).activate(which, TeamRole.OWNER)
        _audit(home, "member_activated", id=member.id, login=member.login)
    invocation.show(describe_member(member), f"Activated {member.login}.")


@members.command()
@click.argument("which")
@pass_invocation
def password(invocation: Invocation, which: str) -> None:
    """Set the password of a member, from standard input or asked for in a terminal. Ends present sign-ins."""
    from retinue.teams import explained_imports
    from retinue.teams.members import MemberStore

    with explained_imports():
        from retinue.teams.passwords import hash_password
    with _changing(invocation) as (database, home):
        store = MemberStore(database)
        member = store.require(which)
        store.set_password(
            member.id, hash_password(read_hidden("Password", invocation), home.config.teams.password.min_length)
        )
        _audit(home, "member_password_set", id=member.id, login=member.login)
    invocation.show({"id": member.id, "login": member.login}, f"Set the password of {member.login}.")


@members.command()
@click.argument("which")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def erase(invocation: Invocation, which: str, yes: bool) -> None:
    """Erase a member: the account, the sign-ins, and what the team's audit log says about them. It cannot be undone.

    The audit log stays valid: it shows that entries were erased, and by whom. Conversations and notes in the homes of
    the team are listed, and stay.
    """
    from retinue.cli.team_log import open_team_log
    from retinue.core.people import Person
    from retinue.gateway.auth.member_access import own_session
    from retinue.teams.members import MemberStore

    home = invocation.load_home()
    if not yes:
        click.confirm(f"Erase {which}? This cannot be undone.", abort=True, err=True)
    with _changing(invocation) as (database, _), open_team_log(home) as (log, _):
        store = MemberStore(database)
        member = store.require(which)
        store.require_other_owner(member.id)
        count = log.erase(member, CLI)
    sessions = [own_session(agent, member.id) for agent in home.config.agents.ids]
    folder = Person.of_member(member.id).folder
    text = (
        f"Erased {member.id}, and the content of {count} entries of the audit log.\n"
        f"These stay, if they exist: the sessions {', '.join(sessions)}, and {folder} in the workspaces."
    )
    invocation.show({"id": member.id, "entries": count, "kept": {"sessions": sessions, "folder": folder}}, text)


@members.command("sign-out")
@click.argument("which")
@pass_invocation
def sign_out(invocation: Invocation, which: str) -> None:
    """End everything that a member signed in with. The member can sign in again."""
    from retinue.teams.access import AccessStore
    from retinue.teams.members import MemberStore

    with _changing(invocation) as (database, home):
        member = MemberStore(database).require(which)
        AccessStore(database).end_all(member.id)
        _audit(home, "member_signed_out", id=member.id, login=member.login)
    invocation.show({"id": member.id, "login": member.login}, f"Signed {member.login} out.")


@members.command("sign-ins")
@click.argument("which")
@pass_invocation
def list_sign_ins(invocation: Invocation, which: str) -> None:
    """List what a member signed in with, or the tokens of a service account."""
    from retinue.teams.access import AccessStore
    from retinue.teams.members import MemberStore

    with open_team(invocation.load_home()) as database:
        member = MemberStore(database).require(which)
        found = [
            {
                "id": each.id,
                "kind": each.kind,
                "client": each.client,
                "scopes": sorted(each.scopes or member.scopes()),
                "createdAt": each.created_at.isoformat(),
                "usedAt": each.used_at.isoformat(),
                "expiresAt": each.expires_at.isoformat() if each.expires_at else None,
            }
            for each in AccessStore(database).list_of(member.id)
        ]
    rows = [(row["id"], row["kind"], row["client"], str(row["usedAt"])[:16]) for row in found]
    invocation.show(found, lambda: table(rows, header=("id", "kind", "client", "last used")) if rows else "None.")


@members.command()
@click.argument("name")
@pass_invocation
def service(invocation: Invocation, name: str) -> None:
    """Create the service account NAME for a program. `retinue members token NAME` gives it tokens."""
    from retinue.teams.members import MemberStore, NewMember
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        member = MemberStore(database).add(NewMember(name, name, TeamRole.SERVICE), TeamRole.OWNER)
        _audit(home, "service_account_created", id=member.id, login=member.login)
    invocation.show(describe_member(member), f"Created the service account {member.login}.")


@members.command()
@click.argument("which")
@click.option("--name", default="token", show_default=True, metavar="NAME", help="Name shown in lists.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SERVICE_SCOPES),
    multiple=True,
    default=("read",),
    show_default=True,
    help="Scope to grant; may be repeated.",
)
@click.option("--days", type=click.IntRange(1, 3_650), help="Lifetime (default: until it is ended).")
@pass_invocation
def token(invocation: Invocation, which: str, name: str, scopes: tuple[str, ...], days: int | None) -> None:
    """Create a token of a service account and print it. It cannot be shown again."""
    from datetime import timedelta

    from retinue.teams.access import AccessStore
    from retinue.teams.members import MemberStore
    from retinue.wire.protocol import Scope

    with _changing(invocation) as (database, home):
        member = MemberStore(database).require(which)
        lifetime = timedelta(days=days) if days else None
        made, text = AccessStore(database).create_token(member, name, [Scope(scope) for scope in scopes], lifetime)
        _audit(home, "service_token_created", id=made.id, login=member.login, scopes=list(scopes))
    invocation.show({"id": made.id, "member": member.id, "scopes": list(scopes), "token": text}, text)


@members.command()
@click.argument("identity", metavar="ID")
@pass_invocation
def end(invocation: Invocation, identity: str) -> None:
    """End one sign-in or token, by the id that `retinue members sign-ins` shows."""
    from retinue.core.errors import UsageError
    from retinue.teams.access import AccessStore

    with _changing(invocation) as (database, home):
        if not AccessStore(database).end(identity):
            raise UsageError(f"There is no valid sign-in or token '{identity}'.")
        _audit(home, "member_access_ended", id=identity)
    invocation.show({"id": identity, "ended": True}, f"Ended {identity}.")


@roles.command("list")
@pass_invocation
def list_roles(invocation: Invocation) -> None:
    """List the roles and the scopes that they grant."""
    from retinue.teams.roles import AGENT_ROLES, ROLES, scopes_of

    found = [
        {"role": role.value, "scopes": sorted(scopes_of(role)), "forAgents": role in AGENT_ROLES, "about": facts.about}
        for role, facts in ROLES.items()
    ]
    rows = [(role.value, " ".join(sorted(scopes_of(role))), facts.about) for role, facts in ROLES.items()]
    invocation.show(found, lambda: table(rows, header=("role", "scopes", "what it is for")))


@roles.command("set")
@click.argument("which")
@click.argument("role", type=click.Choice(ROLES))
@click.option("--agent", metavar="ID", help="Only for this agent: operator, member or viewer.")
@pass_invocation
def set_role(invocation: Invocation, which: str, role: str, agent: str | None) -> None:
    """Give a member the role ROLE, in the team or for one agent."""
    from retinue.teams.members import MemberStore
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        store = MemberStore(database)
        if agent is None:
            member = store.set_role(which, TeamRole(role), TeamRole.OWNER)
        else:
            member = store.set_agent_role(which, home.agent_id(agent), TeamRole(role), TeamRole.OWNER)
        _audit(home, "member_role_set", id=member.id, login=member.login, role=role, agent=agent)
    where = f" for the agent {agent}" if agent else ""
    invocation.show(describe_member(member), f"{member.login} is {role}{where}.")


@roles.command("unset")
@click.argument("which")
@click.option("--agent", metavar="ID", required=True, help="The agent.")
@pass_invocation
def unset_role(invocation: Invocation, which: str, agent: str) -> None:
    """Remove the role of a member for one agent, so that the role in the team applies."""
    from retinue.teams.members import MemberStore
    from retinue.teams.roles import TeamRole

    with _changing(invocation) as (database, home):
        member = MemberStore(database).set_agent_role(which, agent, None, TeamRole.OWNER)
        _audit(home, "member_role_unset", id=member.id, login=member.login, agent=agent)
    invocation.show(describe_member(member), f"{member.login} has the role of the team for {agent}.")


def describe_member(member: TeamMember) -> dict[str, Any]:
    """A member as JSON."""
    return {
        "id": member.id,
        "login": member.login,
        "name": member.name,
        "role": member.role.value,
        "agents": {agent: role.value for agent, role in sorted(member.agents.items())},
        "scopes": sorted(member.scopes()),
        "signsInWith": [
            *(["password"] if member.has_password else []),
            *([member.issuer] if member.issuer else []),
        ],
        "createdAt": member.created_at.isoformat(),
        "seenAt": member.seen_at.isoformat() if member.seen_at else None,
        "state": "active" if member.is_active else "deactivated",
    }


def rows_of_member(home: Home, which: str) -> Iterator[Capability]:
    """Return what a member of the team may do with each agent."""
    from retinue.gateway.auth.member_access import own_session
    from retinue.runtime.inspect.matrix import MemberFacts, member_matrix
    from retinue.teams.members import MemberStore

    with open_team(home) as database:
        member = MemberStore(database).require(which)
    by_agent, general = member.scopes_by_agent(), member.scopes()
    session = own_session(home.config.agents.default_id, member.id).split(":", 2)[2]
    facts = MemberFacts(member.id, member.login, member.role.value, session)
    return member_matrix(home.config, facts, lambda agent: by_agent.get(agent, general))


@contextmanager
def _changing(invocation: Invocation) -> Iterator[tuple[TeamDatabase, Home]]:
    from retinue.cli.gateway_access import refuse_agents

    refuse_agents("change the members of a team")
    home = invocation.load_home()
    with open_team(home) as database:
        yield database, home


def _audit(home: Home, kind: str, **details: object) -> None:
    given = {name: value for name, value in details.items() if value is not None}
    home.audit.record(kind, CLI, {"team": home.config.teams.team, **given})


def _format_agents(agents: dict[str, str]) -> str:
    return ", ".join(f"{agent}: {role}" for agent, role in agents.items())


def _format_seen(row: dict[str, Any]) -> str:
    return str(row["seenAt"] or "never")[:16]
