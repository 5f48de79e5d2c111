"""How far the updates of each channel account were accepted, and the state of its listener."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.storage.database import Database, Row

_READ = "SELECT channel, account, position, state, error, heard_at, lag_ms FROM channel_accounts"

_POSITION = f"{_READ} WHERE channel = ? AND account = ?"

_ADVANCE = """
INSERT INTO channel_accounts (channel, account, position, state, changed_at) VALUES (?, ?, ?, 'starting', ?)
ON CONFLICT (channel, account) DO UPDATE SET position = excluded.position, changed_at = excluded.changed_at
"""

_SET_STATE = """
INSERT INTO channel_accounts (channel, account, state, error, changed_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (channel, account) DO UPDATE
SET state = excluded.state, error = excluded.error, changed_at = excluded.changed_at
"""

_HEARD = "UPDATE channel_accounts SET heard_at = ?, lag_ms = ? WHERE channel = ? AND account = ?"

_FORGET = "DELETE FROM channel_accounts WHERE channel = ? AND account = ?"


class ListenerState(StrEnum):
    """The state of the listener of an account."""

    STARTING = "starting"
    CONNECTED = "connected"
    RETRYING = "retrying"
    """The service cannot be reached; the listener tries again."""
    FAILED = "failed"
    """The service refuses the account; nothing happens until the configuration changes."""
    STOPPED = "stopped"


class AccountState(Struct, frozen=True):
    """The stored state of an account; `lag` is how old the last message was when it was accepted, in seconds."""

    channel: str
    account: str
    state: ListenerState
    position: str | None = None
    error: str | None = None
    heard_at: datetime | None = None
    lag: float | None = None


class ChannelAccountStore:
    """The states of all accounts of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.clock = clock

    def find(self, channel: str, account: str) -> AccountState | None:
        return next(map(_read, self._database.read(_POSITION, (channel, account))), None)

    def list(self) -> tuple[AccountState, ...]:
        return tuple(map(_read, self._database.read(_READ)))

    def advance(self, channel: str, account: str, position: str) -> None:
        """Store that everything before a position was accepted."""
        with self._database.change() as base:
            base.execute(_ADVANCE, (channel, account, position, self._now()))

    def set_state(self, channel: str, account: str, state: ListenerState, error: str | None = None) -> None:
        with self._database.change() as base:
            base.execute(_SET_STATE, (channel, account, state.value, error, self._now()))

    def record_heard(self, channel: str, account: str, lag: float | None) -> None:
        """Store when the last message was accepted, and how old it was."""
        lag_ms = None if lag is None else round(lag * 1000)
        with self._database.change() as base:
            base.execute(_HEARD, (self._now(), lag_ms, channel, account))

    def forget(self, channel: str, account: str) -> None:
        """Delete what is stored about an account."""
        with self._database.change() as base:
            base.execute(_FORGET, (channel, account))

    def _now(self) -> str:
        return format_moment(self.clock.now())


def _read(row: Row) -> AccountState:
    return AccountState(
        row["channel"],
        row["account"],
        ListenerState(row["state"]),
        row["position"],
        row["error"],
        parse_moment(row["heard_at"]) if row["heard_at"] else None,
        None if row["lag_ms"] is None else row["lag_ms"] / 1000,
    )
