"""The settings of `teams`: which team a home serves, and how its members sign in."""

from __future__ import annotations

import re
from datetime import timedelta

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
    sign_in: SignInLimits = key(SignInLimits)
    """How long a sign-in is valid."""
    password: PasswordSettings = key(PasswordSettings)
    """Sign-in with a password."""
