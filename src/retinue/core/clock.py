"""Time and new ids, passed in as arguments so that decisions are reproducible."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol

IdFactory = Callable[[], str]
"""Returns a new unique id."""


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> datetime:
        """Return the current time with its time zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that is never set, and that also counts while the machine is suspended."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

MIN_JUMP = timedelta(seconds=5)
"""A smaller difference is a correction by the time service, and is ignored."""


class ClockWatch:
    """Detects that the clock was set, by comparison with the monotonic clock. A slow correction is not a jump."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = self._measure()

    def check(self) -> timedelta | None:
        """Return how far the clock was set since the last check, negative if it was set back; None if it was not."""
        before, self._start = self._start, self._measure()
        jump = self._start - before
        return jump if abs(jump) >= MIN_JUMP else None

    def _measure(self) -> datetime:
        """Return what the clock showed when the monotonic clock was zero."""
        return self._clock.now() - timedelta(seconds=self._clock.monotonic())


_TWELVE_HOURS = frozenset({"en_US", "en_CA", "en_AU", "en_NZ", "en_IN", "en_PH", "en_PK", "es_MX", "ar_EG", "hi_IN"})
"""Locales that use the 12-hour clock."""

EPOCH = datetime.fromtimestamp(0, UTC)


def format_moment(moment: datetime) -> str:
    """Format a time in UTC with a fixed width, so that the texts sort like the times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse_moment(text: str) -> datetime:
    """Parse the output of `format_moment`; an invalid text becomes the minimum time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return EPOCH


def clock_style(wanted: str, environment: Mapping[str, str]) -> str:
    """Return the `strftime` format of the time of day: 12 or 24 hours, or with `auto` that of the locale."""
    if wanted == "auto":
        named = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_TIME", "LANG"))), "")
        wanted = "12" if named.partition(".")[0] in _TWELVE_HOURS else "24"
    return "%I:%M %p" if wanted == "12" else "%H:%M"


def random_id() -> str:
    """Return 16 random hexadecimal digits."""
    return secrets.token_hex(8)


def derived_uuid(name: str) -> str:
    """Return the UUID that belongs to a name: the same one for the same name, in every process."""
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def random_uuid() -> str:
    """Return a random UUID in its usual format."""
    digits = secrets.token_hex(16)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
