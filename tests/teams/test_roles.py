"""What roles allow, and who may give them."""

from __future__ import annotations

import pytest

from retinue.teams.roles import AGENT_ROLES, ROLES, TeamRole, may_give, role_of_groups, scopes_by_agent, scopes_of
from retinue.wire.protocol import Scope

R, W, A = Scope.READ, Scope.WRITE, Scope.APPROVE


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (TeamRole.OWNER, {R, W, A, Scope.ADMIN}),
        (TeamRole.ADMIN, {R, W, A, Scope.ADMIN}),
        (TeamRole.OPERATOR, {R, W, A}),
        (TeamRole.MEMBER, {R, W}),
        (TeamRole.VIEWER, {R}),
        (TeamRole.SERVICE, {R, W, A}),
    ],
)
def test_each_role_has_these_scopes_and_nobody_may_pair_devices(role: TeamRole, expected: set[Scope]) -> None:
    assert scopes_of(role) == expected


def test_a_token_never_has_more_than_its_role() -> None:
    for role in TeamRole:
        for limit in Scope:
            assert scopes_of(role, [limit]) <= scopes_of(role)
    assert scopes_of(TeamRole.VIEWER, [Scope.ADMIN]) == {R}
    assert scopes_of(TeamRole.SERVICE, [R]) == {R}


def test_a_role_for_an_agent_replaces_that_of_the_team_unless_the_member_is_an_admin() -> None:
    roles = {"ops": TeamRole.OPERATOR, "legal": TeamRole.VIEWER}
    assert scopes_by_agent(roles, TeamRole.MEMBER) == {"ops": {R, W, A}, "legal": {R}}
    assert scopes_by_agent(roles, TeamRole.MEMBER, [R]) == {"ops": {R}, "legal": {R}}
    assert scopes_by_agent(roles, TeamRole.ADMIN) == {}
    assert all(Scope.ADMIN not in ROLES[role].scopes for role in AGENT_ROLES)


def test_only_owners_and_admins_give_roles_and_admins_only_those_below_them() -> None:
    below = {TeamRole.OPERATOR, TeamRole.MEMBER, TeamRole.VIEWER}
    for actor in TeamRole:
        allowed = {role for role in TeamRole if may_give(actor, None, role)}
        match actor:
            case TeamRole.OWNER:
                assert allowed == set(TeamRole)
            case TeamRole.ADMIN:
                assert allowed == below | {TeamRole.SERVICE}
            case _:
                assert allowed == set()
    assert not may_give(TeamRole.ADMIN, TeamRole.OWNER, TeamRole.VIEWER)
    assert not may_give(TeamRole.ADMIN, TeamRole.ADMIN, TeamRole.ADMIN)
    assert not may_give(TeamRole.OWNER, TeamRole.SERVICE, TeamRole.ADMIN)
    assert not may_give(TeamRole.OWNER, TeamRole.MEMBER, TeamRole.SERVICE)


def test_the_highest_role_of_the_groups_counts() -> None:
    roles = {"staff": "member", "leads": "admin", "guests": "viewer"}
    assert role_of_groups(["guests", "leads", "staff"], roles) is TeamRole.ADMIN
    assert role_of_groups(["other"], roles) is None
    assert role_of_groups([], roles, "viewer") is TeamRole.VIEWER
