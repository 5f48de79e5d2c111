"""Roles of members, and the scopes that they grant, in the team and for single agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from retinue.wire.protocol import Scope, with_implied


class TeamRole(StrEnum):
    """What a member may do; the order is that of the rights, and a service account stands apart."""

    OWNER = "owner"
    ADMIN = "admin"
    OPERATOR = "operator"
    MEMBER = "member"
    VIEWER = "viewer"
    SERVICE = "service"


class RoleFacts(Struct, frozen=True):
    """The scopes of a role, and a description."""

    scopes: frozenset[Scope]
    about: str


ROLES: Mapping[TeamRole, RoleFacts] = {
    TeamRole.OWNER: RoleFacts(frozenset({Scope.ADMIN}), "everything, and gives any role to others"),
    TeamRole.ADMIN: RoleFacts(frozenset({Scope.ADMIN}), "everything, and gives the roles below admin to others"),
    TeamRole.OPERATOR: RoleFacts(
        frozenset({Scope.WRITE, Scope.APPROVE}), "talks to agents, and decides what they may do"
    ),
    TeamRole.MEMBER: RoleFacts(frozenset({Scope.WRITE}), "talks to agents"),
    TeamRole.VIEWER: RoleFacts(frozenset({Scope.READ}), "reads"),
    TeamRole.SERVICE: RoleFacts(
        frozenset({Scope.WRITE, Scope.APPROVE}), "a program; each of its tokens has scopes of its own"
    ),
}
AGENT_ROLES = (TeamRole.OPERATOR, TeamRole.MEMBER, TeamRole.VIEWER)
"""The roles that a member can have for a single agent."""
SERVICE_SCOPES = (Scope.READ, Scope.WRITE, Scope.APPROVE)
"""The scopes that a token of a service account can have."""


def scopes_of(role: TeamRole, limit: Iterable[Scope] | None = None) -> frozenset[Scope]:
    """The scopes of a role, at most those of `limit`.

    Nobody gets `pair`: a paired device has a token of the home, which would stay valid after the member is deactivated.
    """
    found = with_implied(ROLES[role].scopes) - {Scope.PAIR}
    return found if limit is None else found & with_implied(limit)


def scopes_by_agent(
    roles: Mapping[str, TeamRole], team_role: TeamRole, limit: Iterable[Scope] | None = None
) -> Mapping[str, frozenset[Scope]]:
    """The scopes for the agents for which a member has a role of its own; owners and admins are not limited by one."""
    if Scope.ADMIN in ROLES[team_role].scopes:
        return {}
    return {agent: scopes_of(role, limit) for agent, role in roles.items()}


def may_give(actor: TeamRole, present: TeamRole | None, wanted: TeamRole) -> bool:
    """Whether a member with the role `actor` may change the role of another from `present` to `wanted`.

    `present` is None for a new member. A service account stays one, and a person never becomes one.
    """
    if present is not None and (present is TeamRole.SERVICE) != (wanted is TeamRole.SERVICE):
        return False
    match actor:
        case TeamRole.OWNER:
            return True
        case TeamRole.ADMIN:
            above = (TeamRole.OWNER, TeamRole.ADMIN)
            return present not in above and wanted not in above
    return False


def role_of_groups(groups: Iterable[str], roles: Mapping[str, str], default: str | None = None) -> TeamRole | None:
    """The highest role that a person's groups give; `default` without any; None if the person has no role."""
    given = {TeamRole(roles[group]) for group in groups if group in roles}
    return next((role for role in TeamRole if role in given), TeamRole(default) if default else None)
