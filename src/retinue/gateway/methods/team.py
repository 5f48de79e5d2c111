"""The team of a gateway: its members, their roles and their sign-ins. Imported only if `teams.team` is set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio.to_thread

from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.members.open import Members
from retinue.gateway.methods.registry import MethodRegistry
from retinue.teams.audit import AuditSearch
from retinue.teams.members import Invitation, TeamMember
from retinue.teams.roles import TeamRole
from retinue.wire import team as wire
from retinue.wire.frames import Done, Nothing
from retinue.wire.protocol import ErrorCode

T = TypeVar("T")

registry = MethodRegistry()


def _members(call: Call) -> Members:
    assert call.gateway.members is not None
    return call.gateway.members


def _actor(call: Call) -> TeamRole:
    """The role of who makes a change. A token of the home with the scope `admin` is the operator's."""
    member = call.principal.member
    return TeamRole(member.role) if member is not None else TeamRole.OWNER


async def _change(call: Call, kind: str, act: Callable[[], T], **details: object) -> T:
    """Make a change in a thread, and record it."""
    found = await anyio.to_thread.run_sync(act)
    await anyio.to_thread.run_sync(_members(call).record, kind, call.principal.known_as, details)
    return found


@registry.implements(wire.GET)
async def get_team(call: Call, params: Nothing) -> wire.TeamFacts:
    members = _members(call)
    settings, provider = call.runtime.home.config.teams, members.sign_in.provider
    signed_in, principal = None, call.principal
    if principal.member is not None:
        agents = {agent: sorted(scopes) for agent, scopes in principal.member.agents.items()}
        signed_in = wire.SignedInMember(principal.member.id, principal.name, principal.member.role, agents)
    return wire.TeamFacts(
        id=members.team.id,
        name=members.team.name,
        organisation=members.team.organisation_name,
        password=settings.password.enabled,
        provider=provider.settings.name if provider else None,
        member=signed_in,
    )


@registry.implements(wire.LIST)
async def list_members(call: Call, params: Nothing) -> wire.MemberList:
    store = _members(call).stores.members
    found = await anyio.to_thread.run_sync(store.list)
    invited = await anyio.to_thread.run_sync(store.invitations)
    return wire.MemberList([_row(member) for member in found], [_invitation(each) for each in invited])


@registry.implements(wire.INVITE)
async def invite(call: Call, params: wire.Invite) -> wire.Invited:
    store, by = _members(call).stores.members, call.principal.known_as
    act = partial(store.invite, params.login, TeamRole(params.role), by, _actor(call))
    made, text = await _change(call, "member_invited", act, login=params.login, role=params.role)
    return wire.Invited(_invitation(made), text, invitation_link(call.runtime.home.config.teams.public_url, text))


def invitation_link(public_url: str | None, text: str) -> str | None:
    """The address of an invitation. Browsers send the part with the secret to no server."""
    return f"{public_url.rstrip('/')}/#invitation={text}" if public_url else None


@registry.implements(wire.WITHDRAW)
async def withdraw(call: Call, params: wire.OfInvitation) -> Done:
    store = _members(call).stores.members
    if not await _change(call, "invitation_withdrawn", partial(store.withdraw, params.id), id=params.id):
        raise RequestRefused(ErrorCode.NOT_FOUND, "There is no such invitation, or it was used.")
    return Done()


@registry.implements(wire.SET_ROLE)
async def set_role(call: Call, params: wire.SetRole) -> wire.MemberRow:
    store, actor = _members(call).stores.members, _actor(call)
    role = TeamRole(params.role) if params.role is not None else None
    if params.agent is not None:
        agent = call.runtime.home.agent_id(params.agent)
        act = partial(store.set_agent_role, params.member, agent, role, actor)
    elif role is not None:
        act = partial(store.set_role, params.member, role, actor)
    else:
        raise RequestRefused(ErrorCode.BAD_REQUEST, "Name the role, or the agent for which to remove it.")
    details = {"member": params.member, "role": params.role, "agent": params.agent}
    return _row(await _change(call, "member_role_set", act, **details))


@registry.implements(wire.DEACTIVATE)
async def deactivate(call: Call, params: wire.OfMember) -> wire.MemberRow:
    act = partial(_members(call).stores.members.deactivate, params.member, _actor(call))
    return _row(await _change(call, "member_deactivated", act, member=params.member))


@registry.implements(wire.ACTIVATE)
async def activate(call: Call, params: wire.OfMember) -> wire.MemberRow:
    act = partial(_members(call).stores.members.activate, params.member, _actor(call))
    return _row(await _change(call, "member_activated", act, member=params.member))


@registry.implements(wire.SIGN_INS)
async def list_sign_ins(call: Call, params: wire.OfMember) -> wire.SignInList:
    stores = _members(call).stores
    member = await anyio.to_thread.run_sync(stores.members.require, params.member)
    found = await anyio.to_thread.run_sync(stores.access.list_of, member.id)
    return wire.SignInList(
        [
            wire.SignInRow(each.id, each.kind, each.client, each.created_at, each.used_at, each.expires_at)
            for each in found
        ]
    )


@registry.implements(wire.END)
async def end_sign_in(call: Call, params: wire.OfSignIn) -> Done:
    act = partial(_members(call).stores.access.end, params.id)
    if not await _change(call, "member_access_ended", act, id=params.id):
        raise RequestRefused(ErrorCode.NOT_FOUND, "There is no such sign-in, or it has ended.")
    return Done()


@registry.implements(wire.AUDIT)
async def search_audit(call: Call, params: wire.ReadTeamAudit) -> wire.TeamAudit:
    wanted = AuditSearch(params.kind, params.text, params.since, params.limit)
    found = await anyio.to_thread.run_sync(_members(call).audit.search, wanted)
    return wire.TeamAudit(
        [wire.TeamAuditRow(each.n, each.at, each.kind, each.who, dict(each.plain_details), each.hash) for each in found]
    )


@registry.implements(wire.VERIFY)
async def verify_audit(call: Call, params: Nothing) -> wire.VerifiedAudit:
    found = await anyio.to_thread.run_sync(_members(call).audit.verify)
    return wire.VerifiedAudit(found.ok, found.entries, found.head, list(found.faults))


def _row(member: TeamMember) -> wire.MemberRow:
    return wire.MemberRow(
        id=member.id,
        login=member.login,
        name=member.name,
        role=member.role.value,
        agents={agent: role.value for agent, role in sorted(member.agents.items())},
        signs_in_with=[*(["password"] if member.has_password else []), *([member.issuer] if member.issuer else [])],
        created_at=member.created_at,
        seen_at=member.seen_at,
        is_active=member.is_active,
    )


def _invitation(made: Invitation) -> wire.InvitationRow:
    return wire.InvitationRow(made.id, made.login, made.role.value, made.invited_by, made.expires_at)
