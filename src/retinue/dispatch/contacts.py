"""Pairing: people who write to the agent without being listed get a code, with which the owner approves them."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.envelope import Origin
from retinue.core.errors import UsageError
from retinue.security.untrusted_text import literal, sanitise_line
from retinue.storage.database import Database, Row

LIFETIME = timedelta(hours=1)
MAX_WAITING = 20
"""How many people can wait on one channel, so that strangers cannot fill the list."""
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_CHARS = 8

_LIST = "SELECT * FROM contacts ORDER BY asked_at"
_FIND = "SELECT * FROM contacts WHERE channel = ? AND sender = ?"
_BY_CODE = "SELECT * FROM contacts WHERE code = ?"
_COUNT = "SELECT count(*) FROM contacts WHERE channel = ? AND state = 'waiting' AND asked_at >= ?"
_ASK = """
INSERT INTO contacts (channel, sender, account, name, code, state, asked_at) VALUES (?, ?, ?, ?, ?, 'waiting', ?)
ON CONFLICT (channel, sender) DO UPDATE
SET account = excluded.account, name = excluded.name, code = excluded.code, asked_at = excluded.asked_at
WHERE contacts.state = 'waiting'
"""
_DECIDE = "UPDATE contacts SET state = ?, decided_at = ?, decided_by = ? WHERE channel = ? AND sender = ?"
_REMOVE = "DELETE FROM contacts WHERE channel = ? AND sender = ?"
_PRUNE = "DELETE FROM contacts WHERE state = 'waiting' AND asked_at < ?"


class ContactState(StrEnum):
    """What was decided about a person."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"


class Contact(Struct, frozen=True):
    """A person who wrote to the agent; the name is what the service shows, and proves nothing."""

    channel: str
    sender: str
    account: str
    name: str
    code: str
    state: ContactState
    asked_at: datetime
    decided_by: str | None = None

    @property
    def address(self) -> str:
        """The address as it stands in `allowFrom`."""
        return f"{self.channel}:{self.sender}"


class ContactStore:
    """The people of a home who were not listed in the configuration."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def is_approved(self, origin: Origin) -> bool:
        """Return whether the owner approved the sender of a message."""
        found = self._find(origin.channel, origin.writer)
        return found is not None and found.state is ContactState.APPROVED

    def ask(self, origin: Origin) -> Contact | None:
        """Store that a person wants to write.

        None if nothing is to be said: the person was rejected, has a valid code already, or too many people wait.
        """
        now = self._clock.now()
        known = self._find(origin.channel, origin.writer)
        if known is not None and (known.state is not ContactState.WAITING or known.asked_at > now - LIFETIME):
            return None
        waiting = self._database.read(_COUNT, (origin.channel, format_moment(now - LIFETIME)))
        if not origin.writer or next(row[0] for row in waiting) >= MAX_WAITING:
            return None
        name = sanitise_line(literal(origin.sender_name or "", 80))
        code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_CHARS))
        values = (origin.channel, origin.writer, origin.account, name, code, format_moment(now))
        with self._database.change() as base:
            base.execute(_PRUNE, (format_moment(now - LIFETIME),))
            base.execute(_ASK, values)
        return self._find(origin.channel, origin.writer)

    def list(self) -> tuple[Contact, ...]:
        """Return the people who wait with a valid code, and those about whom was decided."""
        limit = self._clock.now() - LIFETIME
        contacts = map(_read, self._database.read(_LIST))
        return tuple(each for each in contacts if each.state is not ContactState.WAITING or each.asked_at > limit)

    def decide(self, code: str, state: ContactState, by: str) -> Contact:
        """Approve or reject the person with a code; raise `UsageError` if no valid request has it."""
        found = self.find(code)
        with self._database.change(durable=True) as base:
            now = format_moment(self._clock.now())
            base.execute(_DECIDE, (state.value, now, by, found.channel, found.sender))
        return self._find(found.channel, found.sender) or found

    def find(self, code: str) -> Contact:
        """Return the person who waits with a code; raise `UsageError` if there is none."""
        rows = self._database.read(_BY_CODE, (code.strip().upper(),))
        found = next(map(_read, rows), None)
        if found is None or found.state is not ContactState.WAITING or found.asked_at <= self._clock.now() - LIFETIME:
            raise UsageError(
                f"No pairing request has the code '{literal(code, 20)}'. Codes are valid for one hour; the person gets "
                "a new one with the next message. List them: `retinue channels pairing list`."
            )
        return found

    def remove(self, channel: str, sender: str) -> None:
        """Forget a person; raise `UsageError` if there is none."""
        if self._find(channel, sender) is None:
            raise UsageError(f"There is no contact '{literal(channel, 40)}:{literal(sender, 80)}'.")
        with self._database.change(durable=True) as base:
            base.execute(_REMOVE, (channel, sender))

    def _find(self, channel: str, sender: str) -> Contact | None:
        return next(map(_read, self._database.read(_FIND, (channel, sender))), None)


def _read(row: Row) -> Contact:
    return Contact(
        row["channel"],
        row["sender"],
        row["account"],
        row["name"],
        row["code"],
        ContactState(row["state"]),
        parse_moment(row["asked_at"]),
        row["decided_by"],
    )
