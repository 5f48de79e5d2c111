"""Cooldowns of credentials after failures, computed from earlier failures."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from retinue.core.model import Failure
from retinue.providers.settings import CooldownSettings

SHORT_COOLDOWNS = (timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=5))

# These failures concern the request or the answer, not the credential: one bad session must not
# block the others.
NO_COOLDOWN = frozenset({Failure.FORMAT, Failure.OVERFLOW, Failure.EMPTY})


class Cooldown(Struct, frozen=True):
    """The cooldown of one credential for one model and one reason."""

    model: str
    reason: Failure
    until: datetime
    count: int
    failed_at: datetime

    def holds(self, now: datetime) -> bool:
        """Return whether the cooldown is active; one that starts in the future was recorded with a wrong clock."""
        return self.failed_at <= now < self.until


def next_cooldown(
    previous: Cooldown | None,
    model: str,
    reason: Failure,
    now: datetime,
    settings: CooldownSettings,
    retry_after: float | None = None,
) -> Cooldown | None:
    """Return the cooldown after a failure, longer each time; None if the failure does not concern the credential."""
    if reason in NO_COOLDOWN:
        return None
    window = timedelta(hours=settings.failure_window_hours)
    count = previous.count + 1 if previous and now - previous.failed_at <= window else 1
    duration = _duration(reason, count, settings)
    if retry_after is not None:
        duration = max(duration, timedelta(seconds=retry_after))
    return Cooldown(model, reason, now + duration, count, now)


def _duration(reason: Failure, count: int, settings: CooldownSettings) -> timedelta:
    match reason:
        case Failure.BILLING:
            first, longest = (
                timedelta(hours=settings.billing_backoff_hours),
                timedelta(hours=settings.billing_max_hours),
            )
        case Failure.AUTH:
            first = timedelta(minutes=settings.auth_backoff_minutes)
            longest = timedelta(minutes=settings.auth_max_minutes)
        case _:
            return SHORT_COOLDOWNS[min(count, len(SHORT_COOLDOWNS)) - 1]
    doubled: int = 2 ** min(count - 1, 16)
    return min(first * doubled, longest)
