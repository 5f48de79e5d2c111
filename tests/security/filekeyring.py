"""A keyring in a JSON file, so that tests and the programs they start share one without a desktop.

A program uses it with `PYTHON_KEYRING_BACKEND=tests.security.filekeyring.FileKeyring`, the file in
`TEST_KEYRING_FILE`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import keyring.backend
import keyring.errors


class FileKeyring(keyring.backend.KeyringBackend):
    """Keeps passwords in the clear; for tests only."""

    priority = 1.0

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path or Path(os.environ.get("TEST_KEYRING_FILE", os.devnull))

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
