"""Sign-ins that have begun, in a browser at an identity provider or on a device that shows a code; each works once."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from msgspec import Struct, convert

from retinue.core.errors import UsageError
from retinue.security.untrusted_text import label
from retinue.teams.bearer import (
    CODE_CHARACTERS,
    CODE_LENGTH,
    DEVICE,
    hash_secret,
    make_bearer,
    make_code,
    read_code,
    split_bearer,
)
from retinue.teams.database import TeamDatabase
from retinue.teams.members import MAX_NAME_CHARS

BROWSER_MINUTES = 10
DEVICE_MINUTES = 10
MAX_WAITING = 500
"""How many sign-ins of one kind wait at the same time. The oldest make room: anybody can begin one, so refusing would
let a stranger keep all members out."""


class BegunSignIn(Struct, frozen=True):
    """What the browser brings back (`state`), and what the identity provider must answer with."""

    state: str
    nonce: str
    verifier: str

    def __repr__(self) -> str:
        return "BegunSignIn()"


class WaitingSignIn(Struct, frozen=True):
    """A device that waits for a member's approval."""

    client: str
    created_at: datetime
    expires_at: datetime


class SignInStore:
    """The begun sign-ins of one team."""

    def __init__(self, database: TeamDatabase) -> None:
        self._database = database

    def begin_browser(self) -> BegunSignIn:
        """Begin a sign-in at the identity provider, which any gateway of the team can finish."""
        begun = BegunSignIn(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        self._add("browser", hash_secret(begun.state), BROWSER_MINUTES, nonce=begun.nonce, verifier=begun.verifier)
        return begun

    def take_browser(self, state: str) -> BegunSignIn | None:
        """The sign-in with this state, which cannot be taken again."""
        with self._database.transaction() as transaction:
            rows = transaction.run("take_sign_in", hash=hash_secret(state), now=self._database.now())
        return BegunSignIn(state, rows[0]["nonce"], rows[0]["verifier"]) if rows else None

    def begin_device(self, client: str) -> tuple[str, str]:
        """Begin a sign-in of a device; return what the device keeps, and the code that the member enters."""
        bearer, code = make_bearer(DEVICE), make_code()
        self._add("device", bearer.hash, DEVICE_MINUTES, code=code, client=client)
        return bearer.text, code

    def find_device(self, code: str) -> WaitingSignIn | None:
        """The device that shows a code."""
        with self._database.transaction() as transaction:
            rows = transaction.run("find_device", code=_check_code(code), now=self._database.now())
        return convert(rows[0], WaitingSignIn) if rows else None

    def approve_device(self, code: str, member: str) -> str:
        """Let the device that shows a code act as a member; return the name of the device."""
        with self._database.transaction() as transaction:
            rows = transaction.run("approve_device", code=_check_code(code), member=member, now=self._database.now())
        if not rows:
            raise UsageError("No device shows this code, or the code has expired. Start the sign-in again there.")
        return str(rows[0]["client"])

    def poll_device(self, text: str) -> tuple[str, str] | None:
        """The member and the name of an approved device, once; None while nobody has approved it.

        Raises `UsageError` if the sign-in is unknown, was finished or has expired.
        """
        parts = split_bearer(text, DEVICE)
        now = self._database.now()
        with self._database.transaction() as transaction:
            rows = transaction.run("poll_device", hash=parts[1], now=now) if parts else []
            if not parts or not rows:
                raise UsageError("The sign-in is not known, was finished, or has expired. Start it again.")
            taken = transaction.run("claim_device", hash=parts[1], now=now)
        return (taken[0]["member"], taken[0]["client"]) if taken else None

    def _add(
        self,
        kind: str,
        digest: str,
        minutes: int,
        *,
        code: str | None = None,
        client: str = "",
        nonce: str | None = None,
        verifier: str | None = None,
    ) -> None:
        now = self._database.now()
        with self._database.transaction() as transaction:
            transaction.run("delete_old_sign_ins", now=now)
            transaction.run("make_room", kind=kind, keep=MAX_WAITING - 1)
            transaction.run(
                "add_sign_in",
                hash=digest,
                kind=kind,
                code=code,
                client=label(client, MAX_NAME_CHARS) or kind,
                nonce=nonce,
                verifier=verifier,
                now=now,
                expires=now + timedelta(minutes=minutes),
            )


def format_code(code: str) -> str:
    """A code as it is shown: `BCDF-GHJK`."""
    return f"{code[: CODE_LENGTH // 2]}-{code[CODE_LENGTH // 2 :]}"


def _check_code(typed: str) -> str:
    code = read_code(typed)
    if len(code) != CODE_LENGTH or not set(code) <= set(CODE_CHARACTERS):
        raise UsageError(f"A code has {CODE_LENGTH} letters, such as BCDF-GHJK.")
    return code
