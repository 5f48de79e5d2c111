"""How often somebody may fail to prove who they are."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from retinue.config.sections.gateway import RateLimit
from retinue.core.clock import Clock

MOST_ADDRESSES = 10_000
_LOOPBACK = ("127.", "::1", "::ffff:127.")


def is_loopback(address: str) -> bool:
    return address.startswith(_LOOPBACK)


@dataclass(slots=True)
class _Record:
    moments: deque[float] = field(default_factory=deque)
    locked_until: float = 0.0


class FailureCounter:
    """Failures per address; too many within the window lock the address out for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def locked_for(self, address: str) -> float:
        """For how many more seconds nothing is accepted from an address."""
        record = self._records.get(address)
        return max(0.0, record.locked_until - self._clock.monotonic()) if record else 0.0

    def note(self, address: str, rules: RateLimit, *, always: bool = False) -> None:
        """Count a failure; this machine itself may be exempt, except where something short is guessed at."""
        if rules.exempt_loopback and is_loopback(address) and not always:
            return
        now = self._clock.monotonic()
        record = self._records.setdefault(address, _Record())
        self._records.move_to_end(address)
        while len(self._records) > MOST_ADDRESSES:
            self._records.popitem(last=False)
        while record.moments and record.moments[0] <= now - rules.window_ms / 1000:
            record.moments.popleft()
        record.moments.append(now)
        if len(record.moments) >= rules.max_attempts:
            record.locked_until = now + rules.lockout_ms / 1000
            record.moments.clear()
