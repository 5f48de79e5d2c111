"""Open the members of the team that a gateway serves."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.errors import ConfigError, RetinueError
from retinue.gateway.auth.authenticator import Authenticator
from retinue.gateway.connection import Connections
from retinue.gateway.errors import RequestRefused
from retinue.gateway.members.cookies import SignInCookies
from retinue.gateway.members.directory import SignInDirectory
from retinue.gateway.members.sign_in import Record, SignInService, TeamStores
from retinue.runtime.home import Home
from retinue.runtime.open import Runtime
from retinue.security.secrets import Secrets
from retinue.storage.postgres import open_server
from retinue.teams import explained_imports
from retinue.teams.access import AccessStore
from retinue.teams.audit import TeamAuditLog
from retinue.teams.audit_copy import AuditCopy
from retinue.teams.database import TeamDatabase, TeamRecord
from retinue.teams.members import MemberStore
from retinue.teams.sealing import Seal
from retinue.teams.settings import TeamsSettings
from retinue.teams.sign_ins import SignInStore
from retinue.wire.protocol import CloseCode, ErrorCode

with explained_imports():
    from retinue.teams.provider import IdentityProvider

log = logging.getLogger(__name__)

AUDIT_SECONDS = 1.0
PRUNE_SECONDS = 3_600.0


class Members(Struct, frozen=True, eq=False):
    """What methods and routes use of a team."""

    team: TeamRecord
    stores: TeamStores
    directory: SignInDirectory
    sign_in: SignInService
    cookies: SignInCookies
    record: Record
    audit: TeamAuditLog

    async def load(self, scope: Mapping[str, Any], sent: str | None) -> str | None:
        """The token that a client sent, or that of its cookie. A sign-in that is new here is read from the database."""
        token = sent or self.cookies.read_session(scope)
        try:
            await self.directory.load(token)
        except RetinueError as error:
            log.warning("a sign-in could not be checked: %s", error)
            problem = "The team's database cannot be reached. Try again in a moment."
            raise RequestRefused(ErrorCode.BUSY, problem) from error
        return token


@asynccontextmanager
async def open_members(
    runtime: Runtime, auth: Authenticator, connections: Connections, tasks: TaskGroup
) -> AsyncIterator[Members]:
    """Open the database of the team, and keep the sign-ins of this gateway up to date."""
    home, settings = runtime.home, runtime.home.config.teams
    secrets = runtime.shared.secrets
    assert settings.team is not None
    _check_settings(home)
    assert home.config.storage.url is not None
    with open_server(secrets.resolve(home.config.storage.url)) as server:
        database = TeamDatabase(server, settings.team, home.clock)
        team = await anyio.to_thread.run_sync(database.check)
        stores = TeamStores(database, MemberStore(database), AccessStore(database), SignInStore(database))

        def live_settings() -> TeamsSettings:
            return runtime.home.config.teams

        def record(kind: str, who: str, details: dict[str, object]) -> None:
            home.audit.record(kind, who, {"team": team.id, **details})

        directory = SignInDirectory(stores.access, lambda: live_settings().sign_in, home.clock)
        seal = Seal.of(team.id, settings, secrets) if settings.encryption_key is not None else None
        provider = _make_provider(settings, secrets, home)
        sign_in = SignInService(stores, directory, auth, live_settings, provider, seal, record)
        cookies = SignInCookies(team.id, (settings.public_url or "").startswith("https:"))
        auth.members = directory

        def connected() -> Collection[str]:
            return {principal.token_id for principal in connections.principals()}

        def end(ids: Collection[str]) -> None:
            if ids:
                connections.close_if(lambda principal: principal.token_id in ids, "the sign-in has ended")

        def renew(ids: Collection[str]) -> None:
            if ids:
                problem = "the rights of the member have changed"
                connections.close_if(lambda principal: principal.token_id in ids, problem, CloseCode.RESTART)

        audit = TeamAuditLog(database)
        tasks.start_soon(_keep_audit, AuditCopy(home.paths.audit_log, audit), audit, live_settings, home.clock)
        tasks.start_soon(directory.watch, connected, end, renew)
        tasks.start_soon(sign_in.run)
        yield Members(team, stores, directory, sign_in, cookies, record, audit)


async def _keep_audit(
    copy: AuditCopy, audit: TeamAuditLog, settings: Callable[[], TeamsSettings], clock: Clock
) -> None:
    """Copy what this home records into the log of the team, and delete old entries, until cancelled."""
    pruned_at = -math.inf
    while True:
        try:
            if copy.has_news():
                await anyio.to_thread.run_sync(copy.run)
            days = settings().audit_days
            if days is not None and anyio.current_time() - pruned_at > PRUNE_SECONDS:
                pruned_at = anyio.current_time()
                await anyio.to_thread.run_sync(audit.prune, clock.now() - timedelta(days=days))
        except RetinueError as error:
            log.warning("the audit log of the team could not be written: %s", error)
        await anyio.sleep(AUDIT_SECONDS)


def _check_settings(home: Home) -> None:
    config = home.config
    if config.storage.url is None:
        raise ConfigError("Teams need PostgreSQL. Set `storage.url`; docs/teams.md describes every step.")
    if config.gateway.auth.mode == "none":
        raise ConfigError("teams.team is set, and gateway.auth.mode is 'none', so nobody would have to sign in.")
    provider = config.teams.provider
    if provider.issuer is not None and (provider.client_id is None or config.teams.public_url is None):
        raise ConfigError("teams.provider.issuer is set. Set teams.provider.clientId and teams.publicUrl, too.")


def _make_provider(settings: TeamsSettings, secrets: Secrets, home: Home) -> IdentityProvider | None:
    if settings.provider.issuer is None:
        return None
    secret = settings.provider.client_secret
    return IdentityProvider(settings.provider, secrets.resolve(secret) if secret is not None else None, home.clock)
