"""Noticing that a model goes in circles."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from retinue.core.messages import ToolCall, ToolResult


class Progress(Enum):
    """What the guard thinks of the last calls."""

    FINE = "fine"
    CIRCLING = "circling"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How often the same call may give the same result before the model is told, and before the turn ends."""

    enabled: bool = True
    history: int = 30
    warn: int = 10
    stop: int = 20
    rounds: int = 500
    """The most model calls of one turn, whatever they do."""


@dataclass(slots=True)
class LoopGuard:
    """Remembers the last calls with their results; the same call with a new result is progress."""

    limits: LoopLimits
    _seen: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = deque(maxlen=self.limits.history)

    def watch(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Progress:
        """Take note of one round of calls."""
        if not self.limits.enabled:
            return Progress.FINE
        worst = 0
        for call, result in zip(calls, results, strict=True):
            mark = _fingerprint(call, result)
            self._seen.append(mark)
            worst = max(worst, self._seen.count(mark))
        if worst >= self.limits.stop:
            return Progress.STUCK
        return Progress.CIRCLING if worst >= self.limits.warn else Progress.FINE


def _fingerprint(call: ToolCall, result: ToolResult) -> str:
    arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
    return hashlib.sha256(f"{call.name}\0{arguments}\0{result.text}".encode()).hexdigest()
