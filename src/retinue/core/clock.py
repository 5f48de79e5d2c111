"""Time and fresh ids, passed in so that every decision can be replayed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

IdFactory = Callable[[], str]
"""Makes an id that nobody has had before."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The current time, with a zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


_TWELVE_HOURS = frozenset({"en_US", "en_CA", "en_AU", "en_NZ", "en_IN", "en_PH", "en_PK", "es_MX", "ar_EG", "hi_IN"})
"""Locales in which a day has two times twelve hours."""

EPOCH = datetime.fromtimestamp(0, UTC)


def format_moment(moment: datetime) -> str:
    """UTC of fixed width, so that the order of the texts is the order of the times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse_moment(text: str) -> datetime:
    """The moment that `format_moment` wrote; a text that was damaged since is the beginning of time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return EPOCH


def clock_style(wanted: str, environment: Mapping[str, str]) -> str:
    """How people read the time of day, for `strftime`: by 12 or 24 hours, or with `auto` as their locale does."""
    if wanted == "auto":
        named = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_TIME", "LANG"))), "")
        wanted = "12" if named.partition(".")[0] in _TWELVE_HOURS else "24"
    return "%I:%M %p" if wanted == "12" else "%H:%M"


def random_id() -> str:
    """Sixteen random hexadecimal digits."""
    return secrets.token_hex(8)


def random_uuid() -> str:
    """A random UUID in its usual spelling."""
    digits = secrets.token_hex(16)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"
