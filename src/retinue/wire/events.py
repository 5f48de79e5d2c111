"""The payloads of events."""

from __future__ import annotations

from retinue.core.events import TurnEvent
from retinue.core.keys import RunId
from retinue.wire.frames import SparseWire, Time


class TurnPayload(SparseWire, frozen=True):
    """The payload of `turn`: `runs` are the messages that the turn answers; the last one names the turn."""

    runs: tuple[RunId, ...]
    event: TurnEvent


class SessionsChanged(SparseWire, frozen=True):
    """The payload of `sessions.changed`: a session differs from what lists show."""

    session_key: str
    reason: str


class ConfigChanged(SparseWire, frozen=True):
    """The payload of `config.changed`: a new configuration was applied, or could not be applied."""

    applied: bool
    hash: str
    needs_restart: list[str]
    problems: list[str]


class ApprovalsChanged(SparseWire, frozen=True):
    """The payload of `approvals.changed`: an approval was requested or decided; `approvals.list` has pending ones."""

    id: str
    pending: bool
    session_key: str


class PairingRequested(SparseWire, frozen=True):
    """The payload of `pairing.requested`: what a device shows while it waits for the owner."""

    id: str
    code: str
    expires_at: Time


class DevicesChanged(SparseWire, frozen=True):
    """The payload of `devices.changed`: the number of devices that wait for approval; `devices.list` has them."""

    waiting: int


class Shutdown(SparseWire, frozen=True):
    """The payload of `shutdown`: the gateway stops; messages without an answer are answered after its next start."""

    reason: str


EVENTS: dict[str, tuple[type[SparseWire], str]] = {
    "turn": (TurnPayload, "Something happened in a turn of the stream's session."),
    "sessions.changed": (SessionsChanged, "A session was started, ended or changed. Stream `gateway`."),
    "config.changed": (ConfigChanged, "The configuration was read again. Stream `gateway`."),
    "approvals.changed": (ApprovalsChanged, "An approval was requested or decided. Stream `gateway`."),
    "pairing.requested": (PairingRequested, "Before the hello, to a device that requests pairing: the code to show."),
    "devices.changed": (
        DevicesChanged,
        "A device requested access, stopped waiting, or was revoked. Stream `gateway`.",
    ),
    "shutdown": (Shutdown, "The gateway stops or restarts. Stream `gateway`."),
}
"""Every event: its payload, and when it is sent."""
