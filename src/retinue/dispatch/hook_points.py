"""Hook points for messages, turns, commands and conversations."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnFinished
from retinue.core.keys import SessionKey
from retinue.hooks import HookPoint


class TurnEnded(Struct, frozen=True):
    """A turn has ended."""

    session: SessionKey
    finished: TurnFinished


class SessionChange(Struct, frozen=True):
    """A conversation starts or ends, and why."""

    session: SessionKey
    session_id: str
    reason: str


class CommandGiven(Struct, frozen=True):
    """A slash command was run; a subscriber may add `messages` to its answer."""

    session: SessionKey
    name: str
    rest: str
    sender: str
    messages: tuple[str, ...] = ()


MESSAGE_RECEIVED = HookPoint[Inbound]("message_received")
MESSAGE_SENDING = HookPoint[Outbound]("message_sending")
TURN_END = HookPoint[TurnEnded]("turn_end")
COMMAND = HookPoint[CommandGiven]("command")
SESSION_START = HookPoint[SessionChange]("session_start")
SESSION_END = HookPoint[SessionChange]("session_end")
