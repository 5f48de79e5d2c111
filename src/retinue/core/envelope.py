"""Messages to agents and their outcomes."""

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
    """What caused a turn. Only `chat` means that a person is present. Usage is counted per source."""

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
    """A message to a session."""

    text: str
    session: SessionKey
    images: tuple[Image, ...] = ()
    sender: str | None = None
    owner: bool = True
    channel: str = "terminal"
    source: Source = Source.CHAT
    model: str | None = None
    """The model for this turn only."""
    thinking: ReasoningEffort | None = None
    """The reasoning effort for this turn only."""
    foreign: bool = False
    """Whether it contains untrusted text, such as that of a webhook. The turn is then tainted, whatever its sender."""
    origin: Origin | None = None
    """The chat of a message from a channel; the answer is sent there."""
    instructions: str = ""
    """The sender's instructions for the answer; the model reads them before the message."""
    tools: tuple[ToolSpec, ...] = ()
    """Client tools: a call of one ends the turn and is returned with the answer."""
    results: tuple[ToolResult, ...] = ()
    """The results of client tool calls of the previous turn; without a text the agent continues with them."""
    exchange: int = 0
    """The number of messages between sessions since the last message of a person, including this one."""

    @property
    def stands_alone(self) -> bool:
        """Whether it must not share a turn with other messages, because it has settings for one turn."""
        return bool(self.tools or self.results)


class CallSummary(Struct, frozen=True, rename="camel"):
    """A summary of a tool call of the turn."""

    name: str
    arguments: Mapping[str, Any]
    is_error: bool


class Outbound(Struct, frozen=True, rename="camel"):
    """The outcome of a message: the answer as shown to the person, or the reason why there is none."""

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
    """Calls of client tools; the agent continues after the client has sent their results."""
    interrupted: bool = False
    """Whether it failed because the process ended during the turn."""
