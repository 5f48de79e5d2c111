"""Messages as they enter and leave: what was said, by whom, and where the answer goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Image, Usage


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


@dataclass(frozen=True, slots=True)
class Inbound:
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


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A tool call of the turn, for those who only want to know what was done."""

    name: str
    arguments: Mapping[str, Any]
    is_error: bool


@dataclass(frozen=True, slots=True)
class Outbound:
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
