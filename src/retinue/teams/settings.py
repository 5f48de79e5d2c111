"""The settings of `teams`: which team a home serves, and how its members sign in."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from retinue.security.secrets import SecretValue
from retinue.settings import Duration, Settings, key

_TEAM = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def check_team_id(value: str | None) -> None:
    """Raise `ValueError` if a value is not the id of a team or organisation."""
    if value is not None and not _TEAM.fullmatch(value):
        raise ValueError("must consist of lower-case letters, digits and '-', and begin with a letter or digit")


def _check_public_url(value: str | None) -> None:
    if value is not None and not re.fullmatch(r"https?://[^/?#@]+(/[^?#]*)?", value):
        raise ValueError("must be an address such as https://assistant.example.org")


class SignInLimits(Settings):
    """How long a sign-in is valid."""

    idle: Duration = key(timedelta(hours=12))
    """A sign-in ends if it was not used for this time."""
    absolute: Duration = key(timedelta(days=7))
    """A sign-in ends after this time, even if it is used."""


class PasswordSettings(Settings):
    """Sign-in with a password."""

    enabled: bool = key(True)
    """Whether members may sign in with a password."""
    min_length: int = key(12, ge=8)
    """Minimum length of a new password."""


GivenRole = Literal["owner", "admin", "operator", "member", "viewer"]


def _check_issuer(value: str | None) -> None:
    if value is not None and not re.fullmatch(
        r"https://[^?#\s]+|http://(localhost|127\.0\.0\.1)(:\d+)?[^?#\s]*", value
    ):
        raise ValueError("must be an address that begins with https://, exactly as the provider writes it")


class IdentityProviderSettings(Settings):
    """Sign-in at an identity provider with OpenID Connect."""

    issuer: str | None = key(None, check=_check_issuer)
    """The issuer of the provider, such as https://accounts.example.org. Unset: no sign-in at a provider."""
    name: str = key("Single sign-on")
    """The name of the provider on the sign-in page."""
    client_id: str | None = key(None)
    """The id of Retinue at the provider. The redirect address is `teams.publicUrl` with `/auth/callback`."""
    client_secret: SecretValue | None = key(None)
    """The client secret; without one Retinue is a public client, which PKCE protects."""
    scopes: tuple[str, ...] = key(("openid", "profile", "email"))
    """What to request from the provider; `offline_access` may be needed for a refresh token."""
    groups_claim: str = key("groups")
    """The claim with the groups of a person."""
    roles: dict[str, GivenRole] = key({})
    """The role that each group gives; the highest one counts. With an entry, the groups decide at each check."""
    default_role: GivenRole | None = key(None)
    """The role of people without such a group. Unset: they need an invitation."""
    check_every: Duration = key(timedelta(minutes=15))
    """How often the provider is asked whether a person still has access; needs a refresh token."""


class TeamsSettings(Settings):
    """Members who sign in, with roles; needs `storage.url` and the extra `teams`."""

    team: str | None = key(None, reload="restart", check=check_team_id)
    """The team that this home serves. Unset: no members and no sign-in; tokens work as before."""
    public_url: str | None = key(None, check=_check_public_url)
    """The address under which browsers reach the gateway; identity providers send people back to it."""
    encryption_key: SecretValue | None = key(None)
    """The key for secrets and refresh tokens, at least 32 characters, from the environment, a file or a program."""
    old_encryption_keys: tuple[SecretValue, ...] = key(())
    """Keys that were used before; what they encrypted stays readable."""
    audit_days: int | None = key(None, ge=1)
    """How many days the audit log of the team is kept. Unset: forever."""
    sign_in: SignInLimits = key(SignInLimits)
    """How long a sign-in is valid."""
    password: PasswordSettings = key(PasswordSettings)
    """Sign-in with a password."""
    provider: IdentityProviderSettings = key(IdentityProviderSettings)
    """Sign-in at an identity provider with OpenID Connect."""
