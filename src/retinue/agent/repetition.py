"""Detection of a model that repeats tool calls without progress."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from retinue.core.messages import ToolCall, ToolResult


class LoopProgress(Enum):
    """The assessment of the last calls."""

    FINE = "fine"
    REPEATING = "repeating"
    STUCK = "stuck"


class LoopLimits(Struct, frozen=True):
    """How often the same call may give the same result before the model is warned, and before the turn ends."""

    enabled: bool = True
    history: int = 30
    warn: int = 10
    stop: int = 20
    rounds: int = 500
    """The maximum number of model calls of one turn."""
    idle: int = 30
    """How many calls in a row may repeat earlier results before the turn ends."""
    repeats: bool = True
    """Whether the same call with the same result counts."""
    polls: frozenset[str] = frozenset()
    """Tools that poll for a state; their calls count only if `polling` is true."""
    polling: bool = True
    turns: bool = True
    """Whether two alternating calls with unchanged results count."""


class RepetitionGuard:
    """Records the last calls with their results; the same call with a new result is progress."""

    def __init__(self, limits: LoopLimits) -> None:
        self.limits = limits
        self._seen: deque[str] = deque(maxlen=limits.history)
        self._idle = 0

    def watch(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> LoopProgress:
        """Record one round of calls and return their assessment."""
        if not self.limits.enabled:
            return LoopProgress.FINE
        worst = max((self._record(call, result) for call, result in zip(calls, results, strict=True)), default=0)
        if worst >= self.limits.stop or self._idle >= self.limits.idle:
            return LoopProgress.STUCK
        return LoopProgress.REPEATING if worst >= self.limits.warn else LoopProgress.FINE

    def _record(self, call: ToolCall, result: ToolResult) -> int:
        """Record a call and return how often it was repeated, in any way that counts."""
        mark = _fingerprint(call, result)
        self._idle = self._idle + 1 if mark in self._seen else 0
        self._seen.append(mark)
        counts = self.limits.polling if call.name in self.limits.polls else self.limits.repeats
        return max(self._seen.count(mark) if counts else 0, self._alternations() if self.limits.turns else 0)

    def _alternations(self) -> int:
        """Return how many of the last calls alternated between two different calls."""
        seen = list(self._seen)[::-1]
        pair = seen[:2]
        if len(set(pair)) < 2:
            return 0
        return next((n for n, mark in enumerate(seen) if mark != pair[n % 2]), len(seen))


def _fingerprint(call: ToolCall, result: ToolResult) -> str:
    arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
    return hashlib.sha256(f"{call.name}\0{arguments}\0{result.text}".encode("utf-8", "surrogatepass")).hexdigest()
