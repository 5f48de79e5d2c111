"""The settings of `storage`: where a home keeps what it stores."""

from __future__ import annotations

from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key


class StorageSettings(Settings):
    """Where stored data is kept."""

    url: SecretValue | None = key(None, reload="restart")
    """A PostgreSQL database for sessions, state and memory indexes, such as `postgresql://user@host/retinue`.

    Several gateways can share it. Unset keeps everything in files of the home. Create its tables with
    `retinue storage migrate`; `retinue storage move` copies what the home has.
    """
