"""Encryption of a team's secrets with a key that is not in the database.

AES-256-GCM. The key of a team is derived from the configured one by HKDF, and the name of the secret is authenticated
with it, so that a row of another team or of another name cannot be decrypted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct, convert

from retinue.core.errors import ConfigError, UsageError
from retinue.security.secrets import Secrets
from retinue.teams.database import TeamDatabase
from retinue.teams.settings import TeamsSettings

MIN_KEY_CHARS = 32
MAX_SECRET_CHARS = 64 * 1024
_VERSION = b"\x01"
_NONCE_BYTES = 12
_UNREADABLE = "was encrypted with another key. Add that key to teams.oldEncryptionKeys."


class Seal:
    """Encrypts and decrypts the texts of one team. The first key encrypts; all keys decrypt."""

    def __init__(self, team: str, keys: Sequence[str]) -> None:
        self._keys = []
        for key in keys:
            if len(key) < MIN_KEY_CHARS:
                raise ConfigError(
                    f"teams.encryptionKey is too short: it needs {MIN_KEY_CHARS} characters. `openssl rand -base64 32` "
                    "makes one."
                )
            derived = HKDF(SHA256(), 32, None, b"retinue team secrets:" + team.encode()).derive(key.encode())
            self._keys.append(AESGCM(derived))

    @classmethod
    def of(cls, team: str, settings: TeamsSettings, secrets: Secrets) -> Seal:
        """The seal of the configured keys; raises `ConfigError` if no key is set."""
        if settings.encryption_key is None:
            raise ConfigError(
                "teams.encryptionKey is not set. Set it to a reference, such as "
                '{"source": "env", "id": "RETINUE_TEAM_KEY"}.'
            )
        keys = (settings.encryption_key, *settings.old_encryption_keys)
        return cls(team, [secrets.resolve(key) for key in keys])

    def seal(self, name: str, text: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._keys[0].encrypt(nonce, text.encode(), name.encode())

    def open(self, name: str, sealed: bytes) -> str:
        """Decrypt a text; raises `ConfigError` if no key fits."""
        if sealed[:1] == _VERSION:
            nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
            for key in self._keys:
                try:
                    return key.decrypt(nonce, body, name.encode()).decode()
                except InvalidTag:
                    continue
        raise ConfigError(f"'{name}' {_UNREADABLE}")


class SecretFacts(Struct, frozen=True):
    """A stored secret, without its value."""

    name: str
    changed_by: str
    changed_at: datetime


class TeamSecretStore:
    """The secrets of one team."""

    def __init__(self, database: TeamDatabase, seal: Seal) -> None:
        self._database = database
        self._seal = seal

    def set(self, name: str, value: str, by: str) -> None:
        if not name or len(name) > 200 or not name.isprintable():
            raise UsageError("The name of a secret has 1 to 200 printable characters.")
        if not value or len(value) > MAX_SECRET_CHARS:
            raise UsageError(f"A secret has 1 to {MAX_SECRET_CHARS:,} characters.")
        sealed = self._seal.seal(name, value)
        with self._database.transaction() as transaction:
            transaction.run("set_secret", name=name, sealed=sealed, by=by, now=self._database.now())

    def read(self, name: str) -> str:
        with self._database.transaction() as transaction:
            rows = transaction.run("read_secret", name=name)
        if not rows:
            raise _missing(name)
        return self._seal.open(name, bytes(rows[0]["sealed"]))

    def list(self) -> tuple[SecretFacts, ...]:
        with self._database.transaction() as transaction:
            return tuple(convert(row, SecretFacts) for row in transaction.run("list_secrets"))

    def remove(self, name: str) -> None:
        with self._database.transaction() as transaction:
            if not transaction.run("delete_secret", name=name):
                raise _missing(name)

    def rotate(self) -> int:
        """Encrypt all secrets with the present key; return their number."""
        with self._database.transaction() as transaction:
            rows = transaction.run("read_secrets")
            for row in rows:
                fresh = self._seal.seal(row["name"], self._seal.open(row["name"], bytes(row["sealed"])))
                transaction.run("reseal_secret", name=row["name"], sealed=fresh)
            return len(rows)


def _missing(name: str) -> UsageError:
    return UsageError(f"There is no secret '{name}'. `retinue teams secrets list` shows their names.")
