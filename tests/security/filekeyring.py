"""A keyring in a JSON file, for tests.

A process chooses its keyring once, at the first use, and keeps it; so a test that wants another says `in_use`, which
puts back what was there for the tests after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors


class FileKeyring(keyring.backend.KeyringBackend):
    """Keeps passwords in the clear; for tests only."""

    priority = 1.0

    def __init__(self, path: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path

    def _load(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found

    def get_password(self, service: str, username: str) -> str | None:
        return self._load().get(f"{service}\n{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self.path.write_text(json.dumps({**self._load(), f"{service}\n{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        entries = self._load()
        if entries.pop(f"{service}\n{username}", None) is None:
            raise keyring.errors.PasswordDeleteError("not there")
        self.path.write_text(json.dumps(entries))


@contextmanager
def in_use(ring: keyring.backend.KeyringBackend) -> Iterator[None]:
    """Have this process use a keyring, and afterwards the one that it used before."""
    before = keyring.get_keyring()
    keyring.set_keyring(ring)
    try:
        yield
    finally:
        keyring.set_keyring(before)
