"""Devices that ask to be let in, as they are kept in `state.sqlite` while their connections wait.

A request holds nothing that lets anybody in. Its code tells the owner which screen it belongs to; the token is made
when the connection that asked comes for it, and the scopes are those that the owner gave.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError
from retinue.gateway.failures import neighbourhood
from retinue.gateway.tokens import CODE_CHARACTERS, TokenBook, TokenRecord, join_scopes, spell_moment, split_scopes
from retinue.security.escaping import label
from retinue.storage.database import Database
from retinue.wire.protocol import Scope

REQUEST_MINUTES = 10
MOST_REQUESTS = 16
MOST_PER_ADDRESS = 3
CODE_LENGTH = 6
DEFAULT_SCOPES = (Scope.READ, Scope.WRITE)
"""What a device may do where the owner says nothing else."""

State = Literal["pending", "approved", "rejected"]

_LIST = "SELECT * FROM pairing_requests WHERE expires_at > ? ORDER BY asked_at, id"
_INSERT = """
INSERT INTO pairing_requests (id, code, name, platform, address, asked_at, expires_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')
"""
_DECIDE = "UPDATE pairing_requests SET state = ?, scopes = ? WHERE id = ? AND state = 'pending' AND expires_at > ?"


class TooManyRequests(RetinueError):
    """As many devices wait for the owner as may."""


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A device that waits. What it says about itself is its own word; the address is not."""

    id: str
    code: str
    name: str
    platform: str
    address: str
    asked_at: datetime
    expires_at: datetime
    state: State


class PairingBook:
    """The requests of a home. Any process may decide on one; only the gateway that holds the connection claims it."""

    def __init__(self, database: Database, tokens: TokenBook, clock: Clock) -> None:
        self._database = database
        self._tokens = tokens
        self._clock = clock

    def ask(self, name: str, platform: str, address: str) -> PairingRequest:
        """Note that a device asks; raises `TooManyRequests` where too many wait already."""
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
            base.execute("DELETE FROM pairing_requests WHERE expires_at <= ?", (spell_moment(now),))
            waiting = [neighbourhood(row["address"]) for row in base.execute("SELECT address FROM pairing_requests")]
            if len(waiting) >= MOST_REQUESTS or waiting.count(neighbourhood(address)) >= MOST_PER_ADDRESS:
                raise TooManyRequests("Too many devices wait to be let in already. Try again in a few minutes.")
            told = (request.id, request.code, request.name, request.platform, address)
            base.execute(_INSERT, (*told, spell_moment(now), spell_moment(expires)))
        return request

    def waiting(self) -> tuple[PairingRequest, ...]:
        """The requests that the owner can decide on, the oldest first."""
        return tuple(request for request in self._read() if request.state == "pending")

    def approve(self, which: str, scopes: Iterable[Scope]) -> PairingRequest:
        """Let a device in, by its code or id, with the scopes that the owner gives."""
        given = tuple(scopes)
        if not given:
            raise UsageError("A device needs at least one scope.")
        return self._decide(which, "approved", join_scopes(given))

    def reject(self, which: str) -> PairingRequest:
        """Send a device away."""
        return self._decide(which, "rejected", "")

    def state_of(self, identity: str) -> State | None:
        """What became of a request; None once it has expired or was withdrawn."""
        return next((request.state for request in self._read() if request.id == identity), None)

    def claim(self, request: PairingRequest) -> tuple[TokenRecord, str] | None:
        """The token of a device whose request was approved, once; the request is gone with it."""
        now = spell_moment(self._clock.now())
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
        """Forget a request whose connection is gone."""
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_requests WHERE id = ?", (identity,))

    def forget_all(self) -> None:
        """Forget the requests of a gateway that ended, whose connections are gone with it."""
        with self._database.change() as base:
            base.execute("DELETE FROM pairing_requests")

    def _decide(self, which: str, state: State, scopes: str) -> PairingRequest:
        wanted = which.strip()
        code = wanted.upper().replace("-", "")
        found = [request for request in self.waiting() if wanted == request.id or code == request.code]
        if len(found) == 1:
            with self._database.change() as base:
                now = spell_moment(self._clock.now())
                if base.execute(_DECIDE, (state, scopes, found[0].id, now)).rowcount == 1:
                    return found[0]
        raise UsageError(
            f"No device waits with the code '{wanted[:40]}'. `retinue gateway devices list` shows who does."
        )

    def _read(self) -> tuple[PairingRequest, ...]:
        return tuple(map(_request, self._database.read(_LIST, (spell_moment(self._clock.now()),))))


def spell_code(code: str) -> str:
    """A code as screens show it."""
    return f"{code[:3]}-{code[3:]}"


def _request(row: sqlite3.Row) -> PairingRequest:
    return PairingRequest(
        id=row["id"],
        code=row["code"],
        name=row["name"],
        platform=row["platform"],
        address=row["address"],
        asked_at=datetime.fromisoformat(row["asked_at"]),
        expires_at=datetime.fromisoformat(row["expires_at"]),
        state=row["state"],
    )
