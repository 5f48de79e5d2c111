"""Messages as they enter and leave: what was said, by whom, and where the answer goes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Image, ToolCall, ToolResult, Usage
from retinue.core.model import ReasoningEffort, ToolSpec
from retinue.core.origin import Origin


class Source(StrEnum):
    """What set a turn off; only `chat` counts as somebody being there. Usage is counted by it."""

    CHAT = "chat"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    HOOK = "hook"
    BOOT = "boot"
    SUBAGENT = "subagent"
    BACKGROUND = "background"
    MEMORY = "memory"
    COMPACTION = "compaction"
    OTHER = "other"


class Inbound(Struct, frozen=True, rename="camel"):
    """A message for a session."""

    text: str
    session: SessionKey
    images: tuple[Image, ...] = ()
    sender: str | None = None
    owner: bool = True
    channel: str = "terminal"
    source: Source = Source.CHAT
    model: str | None = None
    """A model for this turn alone."""
    thinking: ReasoningEffort | None = None
    """How much the model reasons, in this turn alone."""
    foreign: bool = False
    """Whether it holds text from outside, such as a webhook's: the turn is then tainted, whoever handed it over."""
    origin: Origin | None = None
    """The chat it was written in, where a channel brought it; the answer goes back there."""
    instructions: str = ""
    """How the sender wants this message answered; the model reads it in front of the message."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the sender runs itself: a call of one ends the turn and is handed over in its answer."""
    results: tuple[ToolResult, ...] = ()
    """What such calls of the turn before gave; without a text the agent goes on from there."""
    exchange: int = 0
    """How many messages sessions sent each other since a person's message, this one included."""

    @property
    def stands_alone(self) -> bool:
        """Whether it needs a turn of its own, because what comes with it is meant for that turn alone."""
        return bool(self.tools or self.results)


class CallSummary(Struct, frozen=True, rename="camel"):
    """A tool call of the turn, for those who only want to know what was done."""

    name: str
    arguments: Mapping[str, Any]
    is_error: bool


class Outbound(Struct, frozen=True, rename="camel"):
    """What became of a message: the answer as the person should see it, or the reason that there is none."""

    run: RunId
    session: SessionKey
    session_id: str
    status: TurnStatus
    text: str
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    calls: tuple[CallSummary, ...] = ()
    reply_to: str | None = None
    to_current: bool = False
    media: tuple[str, ...] = ()
    voice: bool = False
    silent: bool = False
    error: str | None = None
    handed: tuple[ToolCall, ...] = ()
    """Calls of the sender's own tools; the agent goes on once their results are sent."""
    interrupted: bool = False
    """Whether it failed because the process ended during the turn, and not because of the turn itself."""
