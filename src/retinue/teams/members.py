"""Members of a team and invitations, in PostgreSQL."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct, convert
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.security.untrusted_text import label
from retinue.teams.bearer import INVITATION, is_same, make_bearer, split_bearer
from retinue.teams.database import TeamDatabase, TeamTransaction
from retinue.teams.roles import AGENT_ROLES, TeamRole, may_give, scopes_by_agent, scopes_of
from retinue.wire.protocol import Scope

MAX_NAME_CHARS = 100
MAX_LOGIN_CHARS = 200
INVITATION_DAYS = 7
_LOGIN = re.compile(r"[^\s\x00-\x1f\x7f\"'<>`]+")


class TeamMember(Struct, frozen=True):
    """A person or a service account of a team."""

    id: str
    login: str
    name: str
    role: TeamRole
    has_password: bool
    issuer: str | None
    subject: str | None
    created_at: datetime
    seen_at: datetime | None
    deactivated_at: datetime | None
    agents: Mapping[str, TeamRole] = {}
    """The roles for single agents."""

    @property
    def is_active(self) -> bool:
        return self.deactivated_at is None

    def scopes(self, limit: tuple[Scope, ...] | None = None) -> frozenset[Scope]:
        return scopes_of(self.role, limit)

    def scopes_by_agent(self, limit: tuple[Scope, ...] | None = None) -> Mapping[str, frozenset[Scope]]:
        return scopes_by_agent(self.agents, self.role, limit)


class NewMember(Struct, frozen=True):
    """What a new member is made of. The password is a hash; issuer and subject come from an identity provider."""

    login: str
    name: str
    role: TeamRole
    password: str | None = None
    issuer: str | None = None
    subject: str | None = None


class Invitation(Struct, frozen=True):
    """An invitation that was not used yet."""

    id: str
    login: str
    role: TeamRole
    invited_by: str
    created_at: datetime
    expires_at: datetime


class MemberStore:
    """The members of one team. `actor` is the role of the person who makes a change."""

    def __init__(self, database: TeamDatabase) -> None:
        self._database = database

    def list(self) -> tuple[TeamMember, ...]:
        with self._database.transaction() as transaction:
            return _members(transaction)

    def find(self, which: str) -> TeamMember | None:
        """The member with an id or login."""
        with self._database.transaction() as transaction:
            return _find(transaction, which)

    def require(self, which: str) -> TeamMember:
        with self._database.transaction() as transaction:
            return _require(transaction, which)

    def find_identity(self, issuer: str, subject: str) -> TeamMember | None:
        """The member who is a person at an identity provider."""
        with self._database.transaction() as transaction:
            return next(iter(_members(transaction, issuer=issuer, subject=subject)), None)

    def find_with_password(self, login: str) -> tuple[TeamMember | None, str | None]:
        """The member with a login and the hash of the password, with as many statements if there is none."""
        login = login.replace("\0", "\ufffd")  # no login has either, and PostgreSQL refuses the first
        with self._database.transaction() as transaction:
            found = next(iter(_members(transaction, login=login)), None)
            rows = transaction.run("read_password", id=found.id if found else "")
            return found, rows[0]["password"] if rows else None

    def read_password(self, member: str) -> str | None:
        """The hash of a member's password."""
        with self._database.transaction() as transaction:
            rows = transaction.run("read_password", id=member)
            return rows[0]["password"] if rows else None

    def add(self, new: NewMember, actor: TeamRole) -> TeamMember:
        with self._database.transaction() as transaction:
            return self._add(transaction, new, actor)

    def link(self, member: str, issuer: str, subject: str) -> None:
        """Record that a member is a person at an identity provider."""
        with self._database.transaction() as transaction:
            transaction.run("link_member", id=member, issuer=issuer, subject=subject)

    def set_role(self, which: str, role: TeamRole, actor: TeamRole) -> TeamMember:
        """Change the role in the team; open connections are renewed with the new scopes."""
        with self._database.transaction() as transaction:
            member = _require(transaction, which)
            _check_actor(actor, member.role, role)
            if role is not TeamRole.OWNER:
                _keep_owner(transaction, member)
            transaction.run("set_role", id=member.id, role=role.value)
            return _require(transaction, member.id)

    def set_agent_role(self, which: str, agent: str, role: TeamRole | None, actor: TeamRole) -> TeamMember:
        """Give a member a role for one agent; None removes it."""
        if role is not None and role not in AGENT_ROLES:
            known = ", ".join(AGENT_ROLES)
            raise UsageError(f"'{role}' is not a valid role for an agent. Use one of: {known}.")
        with self._database.transaction() as transaction:
            member = _require(transaction, which)
            _check_actor(actor, member.role, member.role)
            if role is None:
                transaction.run("drop_agent_role", id=member.id, agent=agent)
            else:
                transaction.run("set_agent_role", id=member.id, agent=agent, role=role.value)
            return _require(transaction, member.id)

    def deactivate(self, which: str, actor: TeamRole) -> TeamMember:
        """End everything that a member signed in with, and refuse further sign-ins."""
        with self._database.transaction() as transaction:
            member = _require(transaction, which)
            _check_actor(actor, member.role, member.role)
            _keep_owner(transaction, member)
            now = self._database.now()
            transaction.run("set_deactivated", id=member.id, at=now)
            transaction.run("end_all_access", member=member.id, now=now, kept=[])
            return _require(transaction, member.id)

    def require_other_owner(self, which: str) -> None:
        """Raise `UsageError` if a member is the only owner of the team."""
        with self._database.transaction() as transaction:
            _keep_owner(transaction, _require(transaction, which))

    def activate(self, which: str, actor: TeamRole) -> TeamMember:
        """Allow a deactivated member to sign in again."""
        with self._database.transaction() as transaction:
            member = _require(transaction, which)
            _check_actor(actor, member.role, member.role)
            transaction.run("set_deactivated", id=member.id, at=None)
            return _require(transaction, member.id)

    def set_password(self, member: str, password: str) -> None:
        """Store the hash of a new password, and end the sign-ins with the old one."""
        with self._database.transaction() as transaction:
            transaction.run("set_password", id=member, password=password)
            transaction.run("end_all_access", member=member, now=self._database.now(), kept=["service"])

    def record_seen(self, member: str) -> None:
        with self._database.transaction() as transaction:
            transaction.run("record_seen", id=member, now=self._database.now())

    def invite(self, login: str, role: TeamRole, by: str, actor: TeamRole) -> tuple[Invitation, str]:
        """Invite a person; the text of the invitation is returned only here."""
        login = read_login(login)
        if role is TeamRole.SERVICE:
            raise UsageError("A service account is not invited. Create it: retinue members service NAME")
        _check_actor(actor, None, role)
        new, now = make_bearer(INVITATION), self._database.now()
        expires = now + timedelta(days=INVITATION_DAYS)
        with self._database.transaction() as transaction:
            if _members(transaction, login=login):
                raise UsageError(f"'{login}' is a member already. `retinue members list` shows all members.")
            values = {"id": new.id, "hash": new.hash, "login": login, "role": role.value, "by": by}
            transaction.run("add_invitation", **values, now=now, expires=expires)
        return Invitation(new.id, login, role, by, now, expires), new.text

    def invitations(self) -> tuple[Invitation, ...]:
        """Invitations that are valid now."""
        with self._database.transaction() as transaction:
            return tuple(
                convert(row, Invitation) for row in transaction.run("list_invitations", now=self._database.now())
            )

    def withdraw(self, identity: str) -> bool:
        """Make an invitation invalid. False if there is none, or it was used."""
        with self._database.transaction() as transaction:
            return bool(transaction.run("use_invitation", id=identity, now=self._database.now()))

    def accept(self, text: str, name: str, password: str) -> TeamMember:
        """Make a member of an invited person, with the hash of a password. Works once."""
        parts = split_bearer(text.strip(), INVITATION)
        now = self._database.now()
        with self._database.transaction() as transaction:
            rows = transaction.run("find_invitation", id=parts[0], now=now) if parts else []
            same = is_same(parts[1] if parts else "", rows[0]["hash"] if rows else None)
            if not same or not transaction.run("use_invitation", id=rows[0]["id"], now=now):
                raise UsageError("The invitation is not valid, was used, or has expired. Ask for another one.")
            found = convert(rows[0], Invitation)
            new = NewMember(found.login, name or found.login, found.role, password)
            return self._add(transaction, new, TeamRole.OWNER)

    def accept_identity(self, new: NewMember) -> TeamMember | None:
        """Make a member of an invited person whose address an identity provider has verified; None if not invited.

        The invitation decides the role.
        """
        now = self._database.now()
        with self._database.transaction() as transaction:
            rows = transaction.run("find_invitation_for", login=read_login(new.login), now=now)
            if not rows or not transaction.run("use_invitation", id=rows[0]["id"], now=now):
                return None
            return self._add(transaction, replace(new, role=TeamRole(rows[0]["role"])), TeamRole.OWNER)

    def _add(self, transaction: TeamTransaction, new: NewMember, actor: TeamRole) -> TeamMember:
        login, identity = read_login(new.login), secrets.token_hex(6)
        _check_actor(actor, None, new.role)
        added = transaction.run(
            "add_member",
            id=identity,
            login=login,
            name=label(new.name, MAX_NAME_CHARS) or login,
            role=new.role.value,
            password=new.password,
            issuer=new.issuer,
            subject=new.subject,
            now=self._database.now(),
        )
        if not added:
            raise UsageError(f"'{login}' is a member already. `retinue members list` shows all members.")
        return _require(transaction, identity)


def read_login(text: str) -> str:
    """A login in the form that is stored; raises `UsageError`."""
    login = text.strip().lower()
    if not _LOGIN.fullmatch(login) or len(login) > MAX_LOGIN_CHARS:
        raise UsageError("A login is an e-mail address or a name without spaces, quotes and brackets.")
    return login


def _members(
    transaction: TeamTransaction,
    *,
    id: str | None = None,  # noqa: A002 - the name of the column
    login: str | None = None,
    issuer: str | None = None,
    subject: str | None = None,
) -> tuple[TeamMember, ...]:
    rows = transaction.run("list_members", id=id, login=login, issuer=issuer, subject=subject)
    return tuple(convert(row, TeamMember) for row in rows)


def _find(transaction: TeamTransaction, which: str) -> TeamMember | None:
    found = _members(transaction, id=which) or _members(transaction, login=which)
    return found[0] if found else None


def _require(transaction: TeamTransaction, which: str) -> TeamMember:
    found = _find(transaction, which)
    if found is None:
        raise UsageError(f"There is no member '{which}'. `retinue members list` shows all members.")
    return found


def _check_actor(actor: TeamRole, present: TeamRole | None, wanted: TeamRole) -> None:
    if may_give(actor, present, wanted):
        return
    if present is not None and (present is TeamRole.SERVICE) != (wanted is TeamRole.SERVICE):
        raise UsageError("A service account keeps its role, and a person cannot become one.")
    raise RoleRefused(f"The role '{actor}' may not do that for a member with the role '{present or wanted}'.")


class RoleRefused(UsageError):
    """A member's role does not allow a change of another member."""


def _keep_owner(transaction: TeamTransaction, member: TeamMember) -> None:
    owners = [row["id"] for row in transaction.run("lock_owners")]
    if owners == [member.id]:
        raise UsageError("This is the only owner of the team. Make another member an owner first.")
