"""Texts that a client presents: a prefix, the id of a record, and a secret of which only a hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from msgspec import Struct

ACCESS = "rta"
"""The prefix of what a member or a service account presents."""
INVITATION = "rti"
DEVICE = "rtd"
CODE_CHARACTERS = "BCDFGHJKLMNPQRSTVWXZ"
CODE_LENGTH = 8


class NewBearer(Struct, frozen=True):
    """A new text, with what is stored of it."""

    id: str
    hash: str
    text: str

    def __repr__(self) -> str:
        return f"NewBearer({self.id})"


def make_bearer(prefix: str) -> NewBearer:
    identity, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewBearer(identity, hash_secret(secret), f"{prefix}_{identity}_{secret}")


_IDENTITY = re.compile("[0-9a-f]{1,64}")


def split_bearer(text: str, prefix: str) -> tuple[str, str] | None:
    """The id and the hash of the secret in a text; None if it is not one of this kind."""
    found, _, rest = text.partition("_")
    identity, _, secret = rest.partition("_")
    return (identity, hash_secret(secret)) if found == prefix and _IDENTITY.fullmatch(identity) and secret else None


def is_same(given: str, stored: str | None) -> bool:
    """Compare hashes in constant time, also with a record that does not exist."""
    return hmac.compare_digest(given, stored or hash_secret("")) and stored is not None


def make_code() -> str:
    """A code that a person types; it has no vowels, and no letters that look alike."""
    return "".join(secrets.choice(CODE_CHARACTERS) for _ in range(CODE_LENGTH))


def read_code(typed: str) -> str:
    return typed.strip().upper().replace("-", "").replace(" ", "")


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
