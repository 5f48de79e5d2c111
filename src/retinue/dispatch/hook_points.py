"""Hook points for messages, turns, commands and conversations."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnFinished
from retinue.core.keys import SessionKey
from retinue.hooks import HookPoint


class MessageArrived(Inbound, frozen=True, rename="camel"):
    """A message that a turn is about to answer."""

    session_id: str = ""
    workspace: str = ""

    @classmethod
    def of(cls, inbound: Inbound, session_id: str, workspace: str) -> MessageArrived:
        fields: tuple[Any, ...] = (*astuple(inbound), session_id, workspace)
        return cls(*fields)

    def as_inbound(self) -> Inbound:
        """Return the message without the fields that hooks get."""
        return Inbound(*(getattr(self, name) for name in Inbound.__struct_fields__))


class AnswerReady(Outbound, frozen=True, rename="camel"):
    """An answer that is about to be sent."""

    workspace: str = ""

    @classmethod
    def of(cls, outbound: Outbound, workspace: str) -> AnswerReady:
        fields: tuple[Any, ...] = (*astuple(outbound), workspace)
        return cls(*fields)

    def as_outbound(self) -> Outbound:
        """Return the answer without the field that hooks get."""
        return Outbound(*(getattr(self, name) for name in Outbound.__struct_fields__))


class TurnEnded(Struct, frozen=True):
    """A turn has ended."""

    session: SessionKey
    finished: TurnFinished
    session_id: str = ""
    workspace: str = ""


class SessionChange(Struct, frozen=True):
    """A conversation starts or ends, and why."""

    session: SessionKey
    session_id: str
    reason: str
    workspace: str = ""


class CommandGiven(Struct, frozen=True):
    """A slash command was run; a subscriber may add `messages` to its answer."""

    session: SessionKey
    name: str
    rest: str
    sender: str
    messages: tuple[str, ...] = ()
    session_id: str = ""
    workspace: str = ""


MESSAGE_RECEIVED = HookPoint[Inbound]("message_received")
MESSAGE_SENDING = HookPoint[Outbound]("message_sending")
TURN_END = HookPoint[TurnEnded]("turn_end")
COMMAND = HookPoint[CommandGiven]("command")
SESSION_START = HookPoint[SessionChange]("session_start")
SESSION_END = HookPoint[SessionChange]("session_end")
