"""Hook points of a turn: before and after each tool call, and at the end of the turn."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.events import TurnFinished
from retinue.core.keys import SessionKey
from retinue.core.messages import ToolCall, ToolResult
from retinue.hooks.bus import HookPoint


class ToolCallPending(Struct, frozen=True):
    """A tool is about to run; a subscriber may return other arguments or veto the call."""

    session: SessionKey
    call: ToolCall


class ToolCallDone(Struct, frozen=True):
    """A tool has run; a subscriber may return another result."""

    session: SessionKey
    call: ToolCall
    result: ToolResult


class TurnEnded(Struct, frozen=True):
    """A turn has ended."""

    session: SessionKey
    finished: TurnFinished


BEFORE_TOOL = HookPoint[ToolCallPending]("before_tool_call", fails_closed=True)
AFTER_TOOL = HookPoint[ToolCallDone]("after_tool_call")
TURN_END = HookPoint[TurnEnded]("turn_end")
