"""Teams: organisations, members and their roles, sign-in, and secrets, in a PostgreSQL database.

A home without `teams.team` uses nothing of this package but its settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retinue.core.errors import ConfigError


@contextmanager
def explained_imports() -> Iterator[None]:
    """Imports that need the extra `teams`; raises `ConfigError` if it is not installed."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"Teams need the extra 'teams' ({error.name} is missing). Install it: pip install 'retinue[postgres,teams]'"
        ) from None
