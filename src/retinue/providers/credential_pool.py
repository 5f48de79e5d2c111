"""The credential pool: order, rotation and cooldowns of a provider's credentials."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import ConfigError
from retinue.core.model import Failure, ModelFailed
from retinue.providers.auth_profiles import (
    Origin,
    Profile,
    ProfileFile,
    ProfileSummary,
    ProfileUsage,
    next_cooldown,
    summarise,
)
from retinue.providers.base import Credential
from retinue.providers.settings import AuthSettings, ModelsSettings
from retinue.providers.vendors import VENDORS, canonical_provider, find_vendor, settings_of
from retinue.security.secrets import EnvSecret, Secrets

if TYPE_CHECKING:
    from retinue.providers.oauth import OAuthTokens

RENEWED_BEFORE = timedelta(seconds=60)
"""A token that expires this soon is renewed first."""
NEVER = datetime.min.replace(tzinfo=UTC)
LAST_USED_RESOLUTION = timedelta(minutes=1)
"""The order needs the last use only roughly; recording every call would cost a disk flush each time."""

_PRECEDENCE: dict[Origin, int] = {"agent": 0, "main": 1, "config": 2, "environment": 3}


class AuthRules(Struct, frozen=True):
    """The configured credentials and their order."""

    auth: AuthSettings
    models: ModelsSettings


def with_tokens(profile: Profile, tokens: OAuthTokens, now: datetime) -> Profile:
    """Return a profile with the tokens of a sign-in."""
    expires = now + timedelta(seconds=tokens.seconds) if tokens.seconds is not None else None
    return replace(profile, secret=tokens.access, refresh=tokens.refresh, expires=expires)


class CredentialPool:
    """One agent's credentials, then the main agent's, the configuration's and the environment's.

    The usage of each is stored in the agent's own file, also for profiles of the main agent.
    """

    def __init__(
        self, agent_dir: Path, main_dir: Path | None, rules: AuthRules, secrets: Secrets, clock: Clock
    ) -> None:
        self._own = ProfileFile(agent_dir)
        self._main = ProfileFile(main_dir) if main_dir and main_dir != agent_dir else None
        self._rules = rules
        self._secrets = secrets
        self._clock = clock
        self._used: dict[str, datetime] = {}
        self._renewing = anyio.Lock()

    def profiles(self, provider: str) -> tuple[Profile, ...]:
        """Return the profiles of a provider in the order to try, including those in cooldown."""
        provider = canonical_provider(provider)
        found: dict[str, Profile] = {}
        for profile in self._all():
            if profile.provider == provider:
                found.setdefault(profile.id, profile)
        wanted = self._rules.auth.order.get(provider, ())
        records = self._own.records()
        now = self._clock.now()

        def place(profile: Profile) -> tuple[bool, int, int, datetime]:
            named = wanted.index(profile.id) if profile.id in wanted else len(wanted)
            return profile.is_expired(now), named, _PRECEDENCE[profile.origin], self._last_used(profile, records)

        return tuple(sorted(found.values(), key=place))

    def cooldown_until(self, profile: Profile, model: str) -> datetime | None:
        """Return when a credential's cooldown ends; None if it may be used now."""
        now = self._clock.now()
        record = self._own.records().get(profile.id, ProfileUsage())
        ends = [cooldown.until for cooldown in record.cooldowns if cooldown.model == model and cooldown.holds(now)]
        return max(ends, default=None)

    async def open(self, profile: Profile) -> Credential:
        """Return the credential, renewed if it has expired; raise `ConfigError` if the secret is not available."""
        if profile.refresh is not None and profile.is_due(self._clock.now() + RENEWED_BEFORE):
            profile = await self._renew(profile)
        if isinstance(profile.secret, (str, EnvSecret)):
            secret = self._secrets.resolve(profile.secret)
        else:
            secret = await anyio.to_thread.run_sync(self._secrets.resolve, profile.secret)
        return Credential(profile.id, secret, profile.kind)

    async def _renew(self, profile: Profile) -> Profile:
        """Return the profile with new tokens, and store them where they came from; once for simultaneous calls."""
        from retinue.providers.oauth import refresh_tokens

        async with self._renewing:
            current = next((found for found in self.profiles(profile.provider) if found.id == profile.id), profile)
            if current.refresh is None or not current.is_due(self._clock.now() + RENEWED_BEFORE):
                return current
            settings = settings_of(self._rules.models, profile.provider)
            hint = f"Sign in again: retinue models auth login {profile.provider}"
            if settings is None or settings.oauth is None:
                missing = f"models.providers.{profile.provider}.oauth is not set"
                raise ConfigError(f"The token {profile.id} has expired, and {missing}. {hint}")
            try:
                tokens = await refresh_tokens(settings.oauth, current.refresh)
            except ConfigError as error:
                raise ConfigError(f"The token {profile.id} has expired and was not renewed: {error} {hint}") from None
            renewed = with_tokens(current, tokens, self._clock.now())
            (self._main if self._main and current.origin == "main" else self._own).add(renewed)
            return renewed

    def succeeded(self, profile: Profile, model: str) -> None:
        """Record a successful call: the credential's failures for this model are cleared."""
        now = self._clock.now()
        before = self._own.records().get(profile.id, ProfileUsage())
        self._used[profile.id] = now
        kept = tuple(cooldown for cooldown in before.cooldowns if cooldown.model != model)
        stale = before.last_used is None or now - before.last_used >= LAST_USED_RESOLUTION
        if stale or kept != before.cooldowns:
            self._own.update_record(profile.id, lambda record: replace(record, last_used=now, cooldowns=kept))

    def failed(self, profile: Profile, model: str, failure: ModelFailed) -> None:
        """Record a failed call, and start a cooldown for this model if the failure concerns the credential."""
        now = self._clock.now()
        if failure.reason is Failure.AUTH:
            self._secrets.forget(profile.secret)

        def cooldown(record: ProfileUsage) -> ProfileUsage:
            same = [old for old in record.cooldowns if (old.model, old.reason) == (model, failure.reason)]
            settings = self._rules.auth.cooldowns
            previous = same[0] if same else None
            new = next_cooldown(previous, model, failure.reason, now, settings, failure.retry_after)
            others = tuple(old for old in record.cooldowns if old not in same)
            return replace(record, cooldowns=(*others, new)) if new else record

        if next_cooldown(None, model, failure.reason, now, self._rules.auth.cooldowns) is not None:
            self._own.update_record(profile.id, cooldown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return messages about credential files that cannot be used."""
        return (*self._own.notes, *(self._main.notes if self._main else ()))

    def add(self, profile: Profile) -> None:
        self._own.add(profile)

    def remove(self, profile_id: str) -> bool:
        return self._own.remove(profile_id)

    def listed(self) -> tuple[ProfileSummary, ...]:
        """Return every profile this agent could use, without its key."""
        records = self._own.records()
        now = self._clock.now()
        return tuple(summarise(profile, records.get(profile.id, ProfileUsage()), now) for profile in self._all())

    def describe_how_to_add(self, provider: str) -> str:
        """Describe how to add a credential for a provider."""
        vendor = find_vendor(provider)
        variable = f"Set {vendor.variables[0]}, or run" if vendor and vendor.variables else "Run"
        return f"{variable}: retinue models auth add {provider}"

    def _all(self) -> tuple[Profile, ...]:
        main = self._main.profiles("main") if self._main else ()
        return (*self._own.profiles(), *main, *self._configured(), *self._environmental())

    def _configured(self) -> tuple[Profile, ...]:
        return tuple(
            Profile(
                f"{canonical_provider(name)}:config",
                canonical_provider(name),
                "token" if settings.auth == "token" else "api_key",
                settings.api_key,
                "config",
            )
            for name, settings in self._rules.models.providers.items()
            if settings.api_key and settings.auth != "none"
        )

    def _environmental(self) -> tuple[Profile, ...]:
        return tuple(
            Profile(f"{vendor.id}:env", vendor.id, "api_key", EnvSecret("env", variable), "environment")
            for vendor in VENDORS
            if (variable := next((name for name in vendor.variables if self._secrets.environment.get(name)), None))
        )

    def _last_used(self, profile: Profile, records: dict[str, ProfileUsage]) -> datetime:
        written = records.get(profile.id, ProfileUsage()).last_used
        return max(self._used.get(profile.id, NEVER), written or NEVER)
