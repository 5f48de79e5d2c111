"""Sign-in and sign-out of members: with a password, at an identity provider, with an invitation, or on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.core.errors import ConfigError, RetinueError, UsageError
from retinue.gateway.auth.authenticator import Authenticator
from retinue.gateway.errors import RequestRefused
from retinue.gateway.members.directory import SignInDirectory
from retinue.teams.access import AccessKind, AccessStore, NewAccess
from retinue.teams.database import TeamDatabase
from retinue.teams.identities import admit_identity, follow_groups
from retinue.teams.members import MemberStore, TeamMember
from retinue.teams.passwords import PasswordChecker
from retinue.teams.provider import IdentityProvider, ProviderIdentity, ProviderUnavailable, SignInRefused
from retinue.teams.roles import TeamRole
from retinue.teams.sealing import Seal
from retinue.teams.settings import TeamsSettings
from retinue.teams.sign_ins import BegunSignIn, SignInStore
from retinue.wire.protocol import ErrorCode

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_SECONDS = 1.0
"""How often sign-ins are looked for whose provider has to be asked."""
PRUNE_SECONDS = 3_600.0
WRONG_PASSWORD = "The login or the password is wrong."  # noqa: S105 - a message
_SEALED_NAME = "refresh token"

Record = Callable[[str, str, dict[str, object]], None]
"""Writes to the audit log: the kind, who acts, and details."""


class SignedIn(Struct, frozen=True):
    """A member who has just signed in, and the token that the client keeps."""

    member: TeamMember
    token: str

    def __repr__(self) -> str:
        return f"SignedIn({self.member.login})"


class TeamStores(Struct, frozen=True, eq=False):
    """The stores of the gateway's team."""

    database: TeamDatabase
    members: MemberStore
    access: AccessStore
    sign_ins: SignInStore


class SignInService:
    """Signs members in and out."""

    def __init__(
        self,
        stores: TeamStores,
        directory: SignInDirectory,
        auth: Authenticator,
        settings: Callable[[], TeamsSettings],
        provider: IdentityProvider | None,
        seal: Seal | None,
        record: Record,
    ) -> None:
        self._stores = stores
        self._directory = directory
        self._auth = auth
        self._settings = settings
        self.provider = provider
        self._seal = seal
        self._record = record
        self._passwords = PasswordChecker()

    async def with_password(self, login: str, password: str, address: str, client: str) -> SignedIn:
        """Sign a member in; raises `RequestRefused`, in the same time whether the login exists or not."""
        self._require_passwords()
        self._auth.refuse_if_locked(address)
        member, stored = await _in_thread(self._stores.members.find_with_password, login)
        if not await self._passwords.verify(password, stored) or member is None or not member.is_active:
            self._auth.record_failure(address)
            await self._note("sign_in_refused", login, method="password", address=address)
            raise RequestRefused(ErrorCode.UNAUTHENTICATED, WRONG_PASSWORD)
        return await self._open(member, "password", client)

    async def change_password(self, member_id: str, present: str, wanted: str, address: str) -> None:
        """Change the password of a member, which ends all sign-ins with the old one.

        Nobody gives themselves a first password: it would let a member in whom the identity provider refuses by now.
        """
        self._require_passwords()
        self._auth.refuse_if_locked(address)
        stored = await _in_thread(self._stores.members.read_password, member_id)
        if stored is None:
            raise RequestRefused(ErrorCode.FORBIDDEN, "You have no password to change. Sign in as you did before.")
        if not await self._passwords.verify(present, stored):
            self._auth.record_failure(address)
            raise RequestRefused(ErrorCode.FORBIDDEN, "The present password is wrong.")
        hashed = await self._passwords.hash(wanted, self._settings().password.min_length)
        await _in_thread(self._stores.members.set_password, member_id, hashed)
        await self._note("member_password_set", member_id)

    async def with_invitation(self, text: str, name: str, password: str, address: str, client: str) -> SignedIn:
        """Make a member of an invited person, and sign them in."""
        self._require_passwords()
        self._auth.refuse_if_locked(address)
        hashed = await self._passwords.hash(password, self._settings().password.min_length)
        try:
            member = await _in_thread(self._stores.members.accept, text, name, hashed)
        except UsageError:
            self._auth.record_failure(address)
            raise
        await self._note("invitation_accepted", member.login, role=member.role.value)
        return await self._open(member, "password", client)

    async def begin_at_provider(self) -> tuple[BegunSignIn, str]:
        """Begin a sign-in at the identity provider; return it with the address to open."""
        provider = self._require_provider()
        begun = await _in_thread(self._stores.sign_ins.begin_browser)
        return begun, await provider.authorization_url(begun, self._redirect)

    async def finish_at_provider(
        self, state: str, code: str, issuer: str | None, cookie: str | None, client: str
    ) -> SignedIn:
        """Finish a sign-in in the browser that began it; raises `SignInRefused`."""
        provider = self._require_provider()
        begun = await _in_thread(self._stores.sign_ins.take_browser, state) if state and cookie == state else None
        if begun is None:
            await self._note("sign_in_refused", "", method="provider", because="unknown state")
            raise SignInRefused("This sign-in was not begun in this browser, was used, or has expired. Start it again.")
        try:
            identity = await provider.finish(begun, code, self._redirect, issuer)
            member = await _in_thread(admit_identity, self._stores.members, identity, self._settings().provider)
        except SignInRefused as error:
            await self._note("sign_in_refused", "", method="provider", because=str(error))
            raise
        return await self._open(member, "provider", client, identity)

    async def begin_device(self, client: str, address: str) -> tuple[str, str]:
        """Begin the sign-in of a device; return what it keeps, and the code that it shows."""
        self._auth.refuse_if_locked(address)
        return await _in_thread(self._stores.sign_ins.begin_device, client)

    async def approve_device(self, code: str, member: str, login: str, address: str) -> str:
        """Let the device that shows a code act as a member; return its name."""
        self._auth.refuse_if_locked(address)
        try:
            client = await _in_thread(self._stores.sign_ins.approve_device, code, member)
        except UsageError:
            self._auth.record_failure(address)
            raise
        await self._note("device_sign_in_approved", login, client=client)
        return client

    async def poll_device(self, text: str, address: str) -> SignedIn | None:
        """Sign an approved device in; None while nobody has approved it."""
        self._auth.refuse_if_locked(address)
        approved = await _in_thread(self._stores.sign_ins.poll_device, text)
        if approved is None:
            return None
        member = await _in_thread(self._stores.members.require, approved[0])
        if not member.is_active:
            raise RequestRefused(ErrorCode.FORBIDDEN, "This member is deactivated.")
        return await self._open(member, "device", approved[1])

    async def sign_out(self, token_id: str, login: str) -> str | None:
        """End a sign-in on all gateways; return the address at which the person signs out of the provider, too."""
        access = token_id.removeprefix("member:")
        found = await _in_thread(self._stores.access.find, (access,))
        await _in_thread(self._stores.access.end, access)
        self._directory.forget(token_id)
        await self._note("signed_out", login)
        at_provider = any(live.access.kind == "provider" for live in found)
        if not at_provider or self.provider is None:
            return None
        try:
            return await self.provider.logout_url(self._public_url)
        except (ProviderUnavailable, SignInRefused):
            return None

    async def run(self) -> None:
        """Ask the identity provider again about signed-in members, and delete old records, until cancelled."""
        pruned_at = anyio.current_time()
        while True:
            await anyio.sleep(RENEW_SECONDS)
            try:
                if self.provider is not None:
                    await self._renew_due(self.provider)
                if anyio.current_time() - pruned_at > PRUNE_SECONDS:
                    pruned_at = anyio.current_time()
                    await _in_thread(self._stores.access.prune)
            except RetinueError as error:
                log.warning("the sign-ins at the identity provider could not be renewed: %s", error)

    async def _renew_due(self, provider: IdentityProvider) -> None:
        for access in await _in_thread(self._stores.access.due):
            every = self._settings().provider.check_every
            sealed = await _in_thread(self._stores.access.claim_renewal, access, every)
            if sealed and self._seal is not None:
                await self._renew(provider, self._seal, access, sealed)

    async def _renew(self, provider: IdentityProvider, seal: Seal, access: str, sealed: bytes) -> None:
        found = await _in_thread(self._stores.access.find, (access,))
        if not found or found[0].member.subject is None:
            return
        member = found[0].member
        assert member.subject is not None
        try:
            identity = await provider.renew(seal.open(_SEALED_NAME, sealed), member.subject)
            await _in_thread(follow_groups, self._stores.members, member, identity, self._settings().provider)
        except ProviderUnavailable as error:
            log.warning("the identity provider could not be asked about %s: %s", member.login, error)
        except SignInRefused as error:
            await _in_thread(self._stores.access.end_at_provider, member.id)
            await self._note("sign_in_ended", member.login, because=str(error))
        except ConfigError as error:  # the key has changed, which says nothing about the person
            await _in_thread(self._stores.access.end, access)
            await self._note("sign_in_ended", member.login, because=str(error))
        else:
            kept = seal.seal(_SEALED_NAME, identity.refresh_token or "")
            await _in_thread(self._stores.access.store_renewal, access, kept)

    async def _open(
        self, member: TeamMember, kind: AccessKind, client: str, identity: ProviderIdentity | None = None
    ) -> SignedIn:
        settings, now = self._settings(), self._stores.database.now()
        renewal = None
        if identity is not None and identity.refresh_token and self._seal is not None:
            renewal = self._seal.seal(_SEALED_NAME, identity.refresh_token)
        new = NewAccess(
            member.id,
            kind,
            client,
            expires_at=now + settings.sign_in.absolute,
            renewal=renewal,
            renew_at=now + settings.provider.check_every if renewal else None,
        )
        _, token = await _in_thread(self._stores.access.create, new)
        await self._note("signed_in", member.login, method=kind, client=client, role=member.role.value)
        return SignedIn(member, token)

    def _require_passwords(self) -> None:
        if not self._settings().password.enabled:
            raise RequestRefused(ErrorCode.NOT_FOUND, "Sign-in with a password is disabled (teams.password.enabled).")

    def _require_provider(self) -> IdentityProvider:
        if self.provider is None:
            raise RequestRefused(ErrorCode.NOT_FOUND, "There is no identity provider (teams.provider.issuer).")
        return self.provider

    @property
    def _public_url(self) -> str:
        return f"{(self._settings().public_url or '').rstrip('/')}/"

    @property
    def _redirect(self) -> str:
        return f"{self._public_url}auth/callback"

    async def _note(self, kind: str, who: str, **details: object) -> None:
        await _in_thread(self._record, kind, who, details)


async def _in_thread(act: Callable[..., T], *arguments: object) -> T:
    return await anyio.to_thread.run_sync(partial(act, *arguments))


def absolute_seconds(settings: TeamsSettings) -> int:
    """How long a browser keeps the cookie of a sign-in."""
    return int(max(settings.sign_in.absolute, timedelta(seconds=1)).total_seconds())


def may_manage(role: str) -> bool:
    """Whether a role manages members."""
    return role in (TeamRole.OWNER, TeamRole.ADMIN)
