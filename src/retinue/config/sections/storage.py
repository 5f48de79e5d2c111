"""The settings of `storage`: where a home keeps what it stores."""

from __future__ import annotations

from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key


class StorageSettings(Settings):
    """Where stored data is kept."""

    url: SecretValue | None = key(None, reload="restart")
    """A PostgreSQL database for the memory indexes of all agents, such as `postgresql://user@host/retinue`.

    Unset keeps them in files of the home. Create its tables with `retinue storage migrate`.
    """
