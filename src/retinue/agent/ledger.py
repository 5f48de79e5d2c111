"""Where a turn writes down what happened, before anybody is told of it."""

from __future__ import annotations

from typing import Protocol

from retinue.core.messages import Message, ToolCall


class TranscriptWriter(Protocol):
    """The transcript as the loop sees it. A return means the record is kept."""

    async def record(self, message: Message) -> None:
        """Keep a complete message."""
        ...

    async def started(self, call: ToolCall) -> None:
        """Keep that a tool call is about to take effect."""
        ...
