"""Pairing requests of devices, in `state.sqlite` while their connections wait.

A request contains no secret. Its code shows the owner which screen it belongs to. The token is created when the
waiting connection claims it, with the scopes that the owner gave.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct, convert

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError
from retinue.gateway.auth.request_source import network_of
from retinue.gateway.auth.tokens import CODE_CHARACTERS, TokenRecord, TokenStore, format_time, join_scopes, split_scopes
from retinue.security.untrusted_text import label
from retinue.storage.database import Database
from retinue.wire.protocol import Scope

REQUEST_MINUTES = 10
MAX_REQUESTS = 16
MAX_PER_ADDRESS = 3
CODE_LENGTH = 6
DEFAULT_SCOPES = (Scope.READ, Scope.WRITE)
"""The scopes of a device if the owner names no others."""

State = Literal["pending", "approved", "rejected"]

_LIST = "SELECT * FROM pairing_requests WHERE expires_at > ? ORDER BY asked_at, id"
_INSERT = """
INSERT INTO pairing_requests (id, code, name, platform, address, asked_at, expires_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')
"""
_DECIDE = "UPDATE pairing_requests SET state = ?, scopes = ? WHERE id = ? AND state = 'pending' AND expires_at > ?"


class TooManyRequests(RetinueError):
    """The limit of waiting devices is reached."""


class PairingRequest(Struct, frozen=True):
    """A device that waits. It chose its name and platform itself; the address was observed."""

    id: str
    code: str
    name: str
    platform: str
    address: str
    asked_at: datetime
    expires_at: datetime
    state: State


class PairingStore:
    """The requests of a home. Any process may decide on one; only the gateway with the connection claims it."""

    def __init__(self, database: Database, tokens: TokenStore, clock: Clock) -> None:
        self._database = database
        self._tokens = tokens
        self._clock = clock

    def request(self, name: str, platform: str, address: str) -> PairingRequest:
        """Record the request of a device; raises `TooManyRequests` if too many wait already."""
        now = self._clock.now()
        expires = now + timedelta(minutes=REQUEST_MINUTES)
        request = PairingRequest(
            secrets.token_hex(6),
            "".join(secrets.choice(CODE_CHARACTERS) for _ in range(CODE_LENGTH)),
            label(name, 80) or "a device",
            label(platform, 60),
            address,
            now,
            expires,
            "pending",
        )
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_requests WHERE expires_at <= ?", (format_time(now),))
            waiting = [network_of(row["address"]) for row in base.execute("SELECT address FROM pairing_requests")]
            if len(waiting) >= MAX_REQUESTS or waiting.count(network_of(address)) >= MAX_PER_ADDRESS:
                raise TooManyRequests("Too many devices wait for approval already. Try again in a few minutes.")
            shown = (request.id, request.code, request.name, request.platform, address)
            base.execute(_INSERT, (*shown, format_time(now), format_time(expires)))
        return request

    def waiting(self) -> tuple[PairingRequest, ...]:
        """The requests that the owner can decide on, the oldest first."""
        return tuple(request for request in self._read() if request.state == "pending")

    def approve(self, which: str, scopes: Iterable[Scope]) -> PairingRequest:
        """Approve a device, by its code or id, with the scopes that the owner gives."""
        given = tuple(scopes)
        if not given:
            raise UsageError("A device needs at least one scope.")
        return self._decide(which, "approved", join_scopes(given))

    def reject(self, which: str) -> PairingRequest:
        """Reject a device, by its code or id."""
        return self._decide(which, "rejected", "")

    def state_of(self, identity: str) -> State | None:
        """The state of a request; None if it has expired or was withdrawn."""
        return next((request.state for request in self._read() if request.id == identity), None)

    def claim(self, request: PairingRequest) -> tuple[TokenRecord, str] | None:
        """Create the token of an approved device and delete the request; None if it is not approved."""
        now = format_time(self._clock.now())
        with self._database.change() as base:
            row = base.execute(
                "SELECT scopes FROM pairing_requests WHERE id = ? AND state = 'approved' AND expires_at > ?",
                (request.id, now),
            ).fetchone()
            if row is None:
                return None
            base.execute("DELETE FROM pairing_requests WHERE id = ?", (request.id,))
            return self._tokens.insert(base, request.name, split_scopes(row["scopes"]), "device", None)

    def withdraw(self, identity: str) -> None:
        """Delete a request whose connection has ended."""
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_requests WHERE id = ?", (identity,))

    def delete_all(self) -> None:
        """Delete the requests of an earlier gateway process, whose connections have ended."""
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_requests")

    def _decide(self, which: str, state: State, scopes: str) -> PairingRequest:
        wanted = which.strip()
        code = wanted.upper().replace("-", "")
        found = [request for request in self.waiting() if wanted == request.id or code == request.code]
        if len(found) == 1:
            with self._database.change() as base:
                now = format_time(self._clock.now())
                if base.execute(_DECIDE, (state, scopes, found[0].id, now)).rowcount == 1:
                    return found[0]
        raise UsageError(
            f"No device waits with the code '{wanted[:40]}'. `retinue gateway devices list` shows those that do."
        )

    def _read(self) -> tuple[PairingRequest, ...]:
        rows = self._database.read(_LIST, (format_time(self._clock.now()),))
        return tuple(convert(dict(row), PairingRequest) for row in rows)


def format_code(code: str) -> str:
    """A code as screens show it, such as `ABC-DEF`."""
    return f"{code[:3]}-{code[3:]}"
