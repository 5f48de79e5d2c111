"""A clock that advances only when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)


class FrozenClock:
    """A clock for tests."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._ticks = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._ticks

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._now += by
        self._ticks += by.total_seconds()

    def set(self, by: timedelta) -> None:
        """Set the clock forward or back; no time passes on the monotonic clock."""
        self._now += by
