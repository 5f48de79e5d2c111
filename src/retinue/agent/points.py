"""Where plugins may step in during a turn: before and after each tool call, and at its end."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.events import TurnFinished
from retinue.core.keys import SessionKey
from retinue.core.messages import ToolCall, ToolResult
from retinue.hooks.bus import Point


class CallAhead(Struct, frozen=True):
    """A tool is about to run; a subscriber may return other arguments, or veto the call."""

    session: SessionKey
    call: ToolCall


class CallDone(Struct, frozen=True):
    """A tool ran; a subscriber may return another result."""

    session: SessionKey
    call: ToolCall
    result: ToolResult


class TurnEnd(Struct, frozen=True):
    """A turn ended."""

    session: SessionKey
    finished: TurnFinished


BEFORE_TOOL = Point[CallAhead]("before_tool_call", fails_closed=True)
AFTER_TOOL = Point[CallDone]("after_tool_call")
TURN_END = Point[TurnEnd]("turn_end")
