"""The `messages.queue` and `messages.inbound` sections of the configuration."""

from __future__ import annotations

from typing import Literal

from retinue.settings import Settings, key

QueueModeName = Literal["steer", "followup", "collect", "interrupt", "queue", "steer-backlog"]


class QueueSettings(Settings):
    """What happens to a message that arrives while the agent works."""

    mode: QueueModeName = key("steer")
    """`steer` tells the agent at once, `followup` waits, `collect` gathers, `interrupt` stops the work."""
    by_channel: dict[str, QueueModeName] = key({})
    """Other modes per channel."""
    debounce_ms: int = key(500, ge=0)
    """How long to wait for more, in milliseconds."""
    debounce_ms_by_channel: dict[str, int] = key({})
    """Other waits per channel."""
    cap: int = key(20, ge=1)
    """How many messages may wait."""
    drop: Literal["summarize", "old", "new"] = key("summarize")
    """What happens to those that are too many."""


class InboundSettings(Settings):
    """Messages that arrive in pieces."""

    debounce_ms: int = key(0, pending=True, ge=0)
    """How long to wait for the next piece, in milliseconds."""
    by_channel: dict[str, int] = key({}, pending=True)
    """Other waits per channel."""
