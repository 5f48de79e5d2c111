"""Tokens and pairing codes in `state.sqlite`.

A token has the form `rtn_<id>_<secret>`. The id finds the record, the secret is compared with its hash in constant
time, and the scopes are those of the record. Any process of the home may create and revoke tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct, convert

from retinue.core.clock import Clock
from retinue.core.errors import UsageError
from retinue.security.untrusted_text import label
from retinue.storage.database import Database, Row, StateChange
from retinue.storage.files import write_atomic
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import LOCAL_TOKEN_FILE, read_local_token
from retinue.wire.protocol import Scope

PREFIX = "rtn"
CODE_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 8
CODE_MINUTES = 10
MAX_CODES = 20

Kind = Literal["token", "device", "local"]

_FIND = "SELECT * FROM gateway_tokens WHERE id = ?"
_LIST = "SELECT * FROM gateway_tokens ORDER BY created_at, id"
_INSERT = """
INSERT INTO gateway_tokens (id, name, kind, hash, scopes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_REVOKE = "UPDATE gateway_tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
_USED = "UPDATE gateway_tokens SET used_at = ? WHERE id = ?"
_DEAD = "SELECT id FROM gateway_tokens WHERE revoked_at IS NOT NULL OR expires_at <= ?"


def pairing_link(address: str, code: str) -> str:
    """Return the link of a QR code; browsers send the part with the code to no server."""
    return f"{address}#pair={code}"


class TokenRecord(Struct, frozen=True):
    """The record of a token; it has a hash of the secret, not the secret."""

    id: str
    name: str
    kind: Kind
    hash: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class TokenStore:
    """The tokens of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def create(
        self, name: str, scopes: Iterable[Scope], *, kind: Kind = "token", lifetime: timedelta | None = None
    ) -> tuple[TokenRecord, str]:
        """Create a token; its text is returned only here."""
        with self._database.change() as base:
            return self.insert(base, name, tuple(scopes), kind, lifetime)

    def check(self, text: str) -> TokenRecord | None:
        """The record of a token if it is valid now."""
        prefix, _, rest = text.partition("_")
        identity, _, secret = rest.partition("_")
        found = self.find(identity) if prefix == PREFIX and secret else None
        # Always hash and compare, so that the time does not reveal whether the id exists.
        expected = found.hash if found else _hash("")
        if not hmac.compare_digest(_hash(secret), expected) or found is None:
            return None
        return found if found.is_valid(self._clock.now()) else None

    def find(self, identity: str) -> TokenRecord | None:
        rows = self._database.read(_FIND, (identity,))
        return _record(rows[0]) if rows else None

    def list(self) -> tuple[TokenRecord, ...]:
        """All tokens, the oldest first, revoked ones included."""
        return tuple(map(_record, self._database.read(_LIST)))

    def devices(self) -> tuple[TokenRecord, ...]:
        """The tokens of paired devices, the oldest first, revoked ones included."""
        return tuple(record for record in self.list() if record.kind == "device")

    def revoke(self, name: str, *, kind: Kind | None = None) -> TokenRecord:
        """Revoke a token, by its id or name; connections that use it are closed within a second."""
        found = [
            record
            for record in self.list()
            if name in (record.id, record.name) and record.revoked_at is None and kind in (None, record.kind)
        ]
        if len(found) != 1:
            noun, command = ("device", "devices list") if kind == "device" else ("token", "token list")
            problem = f"There is no valid {noun}" if not found else f"There are several {noun}s"
            raise UsageError(f"{problem} '{name}'. `retinue gateway {command}` shows their ids.")
        with self._database.change(durable=True) as base:
            base.execute(_REVOKE, (format_time(self._clock.now()), found[0].id))
        return found[0]

    def record_use(self, identity: str) -> None:
        with self._database.change() as base:
            base.execute(_USED, (format_time(self._clock.now()), identity))

    def invalid_ids(self) -> frozenset[str]:
        """The ids of revoked and expired tokens."""
        return frozenset(row["id"] for row in self._database.read(_DEAD, (format_time(self._clock.now()),)))

    def create_code(self, scopes: Iterable[Scope]) -> str:
        """Create a code that pairs one device within a few minutes."""
        code = "".join(secrets.choice(CODE_CHARACTERS) for _ in range(CODE_LENGTH))
        now = self._clock.now()
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_codes WHERE expires_at <= ?", (format_time(now),))
            if base.execute("SELECT count(*) FROM pairing_codes").fetchone()[0] >= MAX_CODES:
                raise UsageError(
                    f"There are {MAX_CODES} unused codes already. Each expires after {CODE_MINUTES} minutes."
                )
            expires = format_time(now + timedelta(minutes=CODE_MINUTES))
            base.execute("INSERT INTO pairing_codes VALUES (?, ?, ?)", (_hash(code), join_scopes(scopes), expires))
        return code

    def redeem(self, code: str, device: str) -> tuple[TokenRecord, str] | None:
        """Create a token for a device with a valid code, which cannot be used again."""
        now = format_time(self._clock.now())
        digest = _hash(code.strip().upper().replace("-", ""))
        with self._database.change(durable=True) as base:
            row = base.execute(
                "SELECT scopes FROM pairing_codes WHERE hash = ? AND expires_at > ?", (digest, now)
            ).fetchone()
            if row is None:
                return None
            base.execute("DELETE FROM pairing_codes WHERE hash = ?", (digest,))
            return self.insert(base, device, split_scopes(row["scopes"]), "device", None)

    def ensure_local(self, home: HomePaths, name: str = "this machine") -> TokenRecord:
        """The token of the local command line, in a file that only the owner can read.

        Homes that share a database have one each, with a name of its own.
        """
        found = self.check(read_local_token(home) or "")
        if found is not None and found.kind == "local":
            return found
        with self._database.change(durable=True) as base:
            base.execute("DELETE FROM gateway_tokens WHERE kind = 'local' AND name = ?", (name,))
            record, text = self.insert(base, name, (Scope.ADMIN,), "local", None)
        write_atomic(home.credentials / LOCAL_TOKEN_FILE, f"{text}\n".encode())
        return record

    def insert(
        self,
        base: StateChange,
        name: str,
        scopes: tuple[Scope, ...],
        kind: Kind,
        lifetime: timedelta | None,
    ) -> tuple[TokenRecord, str]:
        """Create a token within a transaction. The name may come from a device; it is cleaned because lists show it."""
        name = label(name, 100) or kind
        now = self._clock.now()
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        expires = now + lifetime if lifetime else None
        record = TokenRecord(identity, name, kind, _hash(secret), scopes, now, expires, None, None)
        values = (
            identity,
            name,
            kind,
            record.hash,
            join_scopes(scopes),
            format_time(now),
            format_time(expires) if expires else None,
        )
        base.execute(_INSERT, values)
        return record, f"{PREFIX}_{identity}_{secret}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def join_scopes(scopes: Iterable[Scope]) -> str:
    """Scopes as the database stores them."""
    return " ".join(sorted(scopes))


def split_scopes(text: str) -> tuple[Scope, ...]:
    """Scopes from their stored text; unknown words are ignored."""
    return tuple(scope for scope in Scope if scope in text.split())


def format_time(moment: datetime) -> str:
    """A time as the database stores it; the texts sort like the times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _record(row: Row) -> TokenRecord:
    return convert(dict(row) | {"scopes": split_scopes(row["scopes"])}, TokenRecord)
