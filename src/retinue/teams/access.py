"""What members and service accounts present to a gateway: sign-ins and tokens, in PostgreSQL.

The scopes of an access follow from the member's role at every check, never from what the client holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, convert

from retinue.core.errors import UsageError
from retinue.security.untrusted_text import label
from retinue.teams.bearer import ACCESS, is_same, make_bearer, split_bearer
from retinue.teams.database import TeamDatabase, TeamTransaction
from retinue.teams.members import MAX_NAME_CHARS, TeamMember
from retinue.teams.roles import SERVICE_SCOPES, TeamRole
from retinue.teams.settings import SignInLimits
from retinue.wire.protocol import Scope

AccessKind = Literal["password", "provider", "device", "service"]
KEPT_DAYS = 30
"""How long ended sign-ins are kept."""


class MemberAccess(Struct, frozen=True):
    """A sign-in, or a token of a service account."""

    id: str
    member: str
    kind: AccessKind
    client: str
    scopes: tuple[Scope, ...] | None
    """The scopes of a token, at most; None for all of the role."""
    created_at: datetime
    used_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    renew_at: datetime | None = None


class LiveAccess(Struct, frozen=True):
    """An access with its member, as they are now."""

    access: MemberAccess
    member: TeamMember

    def is_valid(self, limits: SignInLimits, now: datetime) -> bool:
        """Whether the access can be used now."""
        access = self.access
        if not self.member.is_active or access.ended_at is not None:
            return False
        if access.expires_at is not None and access.expires_at <= now:
            return False
        return access.kind == "service" or now < access.used_at + limits.idle


class NewAccess(Struct, frozen=True):
    """What a new access is made of. `renewal` is the encrypted refresh token of a provider."""

    member: str
    kind: AccessKind
    client: str
    scopes: tuple[Scope, ...] | None = None
    expires_at: datetime | None = None
    renewal: bytes | None = None
    renew_at: datetime | None = None


class AccessStore:
    """The sign-ins and tokens of one team."""

    def __init__(self, database: TeamDatabase) -> None:
        self._database = database

    def create(self, new: NewAccess) -> tuple[MemberAccess, str]:
        """Create an access; its text is returned only here."""
        bearer, now = make_bearer(ACCESS), self._database.now()
        client = label(new.client, MAX_NAME_CHARS) or new.kind
        with self._database.transaction() as transaction:
            transaction.run(
                "add_access",
                id=bearer.id,
                member=new.member,
                kind=new.kind,
                hash=bearer.hash,
                client=client,
                scopes=None if new.scopes is None else [scope.value for scope in new.scopes],
                now=now,
                expires=new.expires_at,
                renewal=new.renewal,
                renew_at=new.renew_at,
            )
            transaction.run("record_seen", id=new.member, now=now)
        created = MemberAccess(
            bearer.id, new.member, new.kind, client, new.scopes, now, now, new.expires_at, None, new.renew_at
        )
        return created, bearer.text

    def create_token(
        self, member: TeamMember, name: str, scopes: Iterable[Scope], lifetime: timedelta | None = None
    ) -> tuple[MemberAccess, str]:
        """Create a token of a service account."""
        if member.role is not TeamRole.SERVICE:
            raise UsageError(f"'{member.login}' is a person, who signs in. Only service accounts have tokens.")
        wanted = tuple(scopes)
        if not set(wanted) <= set(SERVICE_SCOPES):
            raise UsageError(f"A service account can have the scopes {', '.join(SERVICE_SCOPES)}.")
        if not member.is_active:
            raise UsageError(f"'{member.login}' is deactivated. Activate it first: retinue members activate")
        expires = self._database.now() + lifetime if lifetime else None
        return self.create(NewAccess(member.id, "service", name, wanted, expires))

    def check(self, text: str, limits: SignInLimits) -> LiveAccess | None:
        """The access that a text belongs to, if it is valid now."""
        parts = split_bearer(text, ACCESS)
        if parts is None:
            return None
        with self._database.transaction() as transaction:
            rows = transaction.run("find_access", ids=[parts[0]])
            if not is_same(parts[1], rows[0]["hash"] if rows else None):
                return None
            found = _with_members(transaction, rows)[0]
        return found if found.is_valid(limits, self._database.now()) else None

    def find(self, ids: Collection[str]) -> tuple[LiveAccess, ...]:
        """Some accesses with their members, valid or not."""
        if not ids:
            return ()
        with self._database.transaction() as transaction:
            return _with_members(transaction, transaction.run("find_access", ids=list(ids)))

    def list_of(self, member: str) -> tuple[MemberAccess, ...]:
        """What a member signed in with and did not end."""
        with self._database.transaction() as transaction:
            return tuple(convert(row, MemberAccess) for row in transaction.run("list_access", member=member))

    def record_use(self, ids: Collection[str]) -> None:
        if ids:
            with self._database.transaction() as transaction:
                transaction.run("use_access", ids=list(ids), now=self._database.now())

    def end(self, identity: str) -> bool:
        """End an access; every gateway closes its connections. False if it had ended before."""
        with self._database.transaction() as transaction:
            ended = transaction.run("end_access", id=identity, now=self._database.now())
            return bool(ended)

    def end_all(self, member: str) -> None:
        """End everything that a member signed in with."""
        with self._database.transaction() as transaction:
            transaction.run("end_all_access", member=member, now=self._database.now(), kept=[])

    def end_at_provider(self, member: str) -> None:
        """End what rests on the identity provider: the sign-ins there, and the devices that were approved with them."""
        with self._database.transaction() as transaction:
            kept = ["password", "service"]
            transaction.run("end_all_access", member=member, now=self._database.now(), kept=kept)

    def due(self) -> tuple[str, ...]:
        """The ids of sign-ins for which the identity provider has to be asked again."""
        with self._database.transaction() as transaction:
            return tuple(row["id"] for row in transaction.run("list_due", now=self._database.now()))

    def claim_renewal(self, identity: str, pause: timedelta) -> bytes | None:
        """Take over the renewal of a sign-in; None if another gateway did. Returns what `renewal` contains."""
        now = self._database.now()
        with self._database.transaction() as transaction:
            rows = transaction.run("claim_renewal", id=identity, now=now, later=now + pause)
            return bytes(rows[0]["renewal"] or b"") if rows else None

    def store_renewal(self, identity: str, renewal: bytes) -> None:
        with self._database.transaction() as transaction:
            transaction.run("store_renewal", id=identity, renewal=renewal)

    def prune(self) -> None:
        """Delete accesses that ended long ago."""
        with self._database.transaction() as transaction:
            transaction.run("delete_old_access", before=self._database.now() - timedelta(days=KEPT_DAYS))


def _with_members(transaction: TeamTransaction, rows: list[dict[str, Any]]) -> tuple[LiveAccess, ...]:
    found = [convert(row, MemberAccess) for row in rows]
    members = {}
    for access in found:
        if access.member not in members:
            (row,) = transaction.run("list_members", id=access.member, login=None, issuer=None, subject=None)
            members[access.member] = convert(row, TeamMember)
    return tuple(LiveAccess(access, members[access.member]) for access in found)
