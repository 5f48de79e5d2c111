"""Passwords: hashed with Argon2id, and checked in the same time for members who do not exist."""

from __future__ import annotations

from functools import cache

import anyio
import anyio.to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from retinue.core.errors import UsageError

MAX_PASSWORD_CHARS = 500
MAX_PARALLEL = 2
"""How many passwords are hashed at the same time; each needs 64 MB and a processor."""
_HASHER = PasswordHasher()


def hash_password(password: str, min_length: int) -> str:
    """Return the hash to store; raise `UsageError` for a password that is too short or too long."""
    if len(password) < min_length:
        raise UsageError(f"The password is too short: {min_length} characters are required (teams.password.minLength).")
    if len(password) > MAX_PASSWORD_CHARS:
        raise UsageError(f"The password is too long: {MAX_PASSWORD_CHARS} characters are allowed.")
    return _HASHER.hash(password)


def verify_password(password: str, stored: str | None) -> bool:
    """Whether a password belongs to a hash. Without a hash the same work is done, so that the time reveals nothing."""
    try:
        _HASHER.verify(stored or _unknown(), password[:MAX_PASSWORD_CHARS])
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None and len(password) <= MAX_PASSWORD_CHARS


@cache
def _unknown() -> str:
    return _HASHER.hash("the password of a member who does not exist")


class PasswordChecker:
    """Verifies passwords without blocking the event loop."""

    def __init__(self) -> None:
        self._places = anyio.CapacityLimiter(MAX_PARALLEL)

    async def verify(self, password: str, stored: str | None) -> bool:
        return await anyio.to_thread.run_sync(verify_password, password, stored, limiter=self._places)

    async def hash(self, password: str, min_length: int) -> str:
        return await anyio.to_thread.run_sync(hash_password, password, min_length, limiter=self._places)
