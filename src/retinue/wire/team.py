"""The team that a gateway serves: its members, their roles and their sign-ins. Only a gateway with a team has these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from retinue.wire.frames import Done, Method, Name, Nothing, Params, Time, Wire
from retinue.wire.protocol import Scope

Login = Annotated[str, Meta(min_length=1, max_length=200)]
RoleName = Literal["owner", "admin", "operator", "member", "viewer"]


class SignedInMember(Wire, frozen=True):
    """The member who is signed in."""

    id: str
    login: str
    role: str
    agents: dict[str, list[Scope]]
    """The scopes for agents for which they differ."""


class TeamFacts(Wire, frozen=True):
    """The team; `member` is null for a client with a token of the home."""

    id: str
    name: str
    organisation: str
    password: bool
    provider: str | None
    member: SignedInMember | None


class MemberRow(Wire, frozen=True):
    """A member or a service account."""

    id: str
    login: str
    name: str
    role: str
    agents: dict[str, str]
    signs_in_with: list[str]
    created_at: Time
    seen_at: Time | None
    is_active: bool


class InvitationRow(Wire, frozen=True):
    """An invitation that was not used yet."""

    id: str
    login: str
    role: str
    invited_by: str
    expires_at: Time


class MemberList(Wire, frozen=True):
    """Members, and open invitations."""

    members: list[MemberRow]
    invitations: list[InvitationRow]


class Invite(Params, frozen=True):
    """The e-mail address of a person, and the role that they get."""

    login: Login
    role: RoleName = "member"


class Invited(Wire, frozen=True):
    """The invitation; its text and its link are sent once."""

    invitation: InvitationRow
    text: str
    link: str | None


class OfMember(Params, frozen=True):
    """A member, by id or login."""

    member: Login


class OfInvitation(Params, frozen=True):
    """An invitation, by its id."""

    id: Name


class SetRole(Params, frozen=True):
    """A member and a role: in the team, or for one agent. Null removes the role for the agent."""

    member: Login
    role: RoleName | None
    agent: Name | None = None


class SignInRow(Wire, frozen=True):
    """What a member signed in with, or a token of a service account."""

    id: str
    kind: str
    client: str
    created_at: Time
    used_at: Time
    expires_at: Time | None


class SignInList(Wire, frozen=True):
    """Sign-ins that were not ended."""

    sign_ins: list[SignInRow]


class OfSignIn(Params, frozen=True):
    """A sign-in or token, by its id."""

    id: Name


class ReadTeamAudit(Params, frozen=True):
    """Which entries to return: the newest that fit."""

    kind: Name | None = None
    text: Login | None = None
    since: Time | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class TeamAuditRow(Wire, frozen=True):
    """An entry; `who` is null and `details` is empty after an erasure."""

    n: int
    at: Time
    kind: str
    who: str | None
    details: dict[str, Any]
    hash: str


class TeamAudit(Wire, frozen=True):
    """Entries, the newest first."""

    entries: list[TeamAuditRow]


class VerifiedAudit(Wire, frozen=True):
    """Whether the log is unchanged, the number of its entries, the hash of the last one, and what is wrong."""

    ok: bool
    entries: int
    head: str
    damage: list[str]


GET = Method("team.get", Scope.READ, Nothing, TeamFacts, "Return the team, and the member who is signed in.")
LIST = Method("members.list", Scope.ADMIN, Nothing, MemberList, "List members and invitations.")
INVITE = Method("members.invite", Scope.ADMIN, Invite, Invited, "Invite a person.", True)
WITHDRAW = Method("members.withdraw", Scope.ADMIN, OfInvitation, Done, "Withdraw an invitation.", True)
SET_ROLE = Method("members.role", Scope.ADMIN, SetRole, MemberRow, "Change the role of a member.", True)
DEACTIVATE = Method(
    "members.deactivate", Scope.ADMIN, OfMember, MemberRow, "End all access of a member, on every gateway.", True
)
ACTIVATE = Method("members.activate", Scope.ADMIN, OfMember, MemberRow, "Allow a member to sign in again.", True)
SIGN_INS = Method("members.signIns", Scope.ADMIN, OfMember, SignInList, "List what a member signed in with.")
END = Method("members.endSignIn", Scope.ADMIN, OfSignIn, Done, "End a sign-in or a token.", True)
AUDIT = Method("team.audit", Scope.ADMIN, ReadTeamAudit, TeamAudit, "Search the audit log of the team.")
VERIFY = Method("team.audit.verify", Scope.ADMIN, Nothing, VerifiedAudit, "Verify the audit log of the team.")

METHODS = (GET, LIST, INVITE, WITHDRAW, SET_ROLE, DEACTIVATE, ACTIVATE, SIGN_INS, END, AUDIT, VERIFY)
