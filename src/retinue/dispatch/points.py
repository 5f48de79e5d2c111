"""Where plugins may step in when messages come and go, and when conversations begin and end."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.envelope import Inbound, Outbound
from retinue.core.keys import SessionKey
from retinue.hooks.bus import Point


class SessionChange(Struct, frozen=True):
    """A conversation begins or ends, and why."""

    session: SessionKey
    session_id: str
    reason: str


class CommandGiven(Struct, frozen=True):
    """Somebody gave a slash command, and it was carried out; a subscriber may add `messages` to what it says."""

    session: SessionKey
    name: str
    rest: str
    sender: str
    messages: tuple[str, ...] = ()


MESSAGE_RECEIVED = Point[Inbound]("message_received")
MESSAGE_SENDING = Point[Outbound]("message_sending")
COMMAND = Point[CommandGiven]("command")
SESSION_START = Point[SessionChange]("session_start")
SESSION_END = Point[SessionChange]("session_end")
