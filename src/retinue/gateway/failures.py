"""How often somebody may fail to prove who they are."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from retinue.config.sections.gateway import RateLimit
from retinue.core.clock import Clock
from retinue.gateway.visitors import plain_address

MOST_ADDRESSES = 10_000
NETWORK_BITS = 64
"""How much of an IPv6 address is given to one customer, who has all the addresses behind it."""


def is_loopback(address: str) -> bool:
    try:
        return plain_address(address).is_loopback
    except ValueError:
        return False


def neighbourhood(address: str) -> str:
    """What of an address tells people apart: one machine cannot fail under many addresses."""
    try:
        found = plain_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))


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
        record = self._records.get(neighbourhood(address))
        return max(0.0, record.locked_until - self._clock.monotonic()) if record else 0.0

    def note(self, address: str, rules: RateLimit, *, always: bool = False) -> None:
        """Count a failure; this machine itself may be exempt, except where something short is guessed at."""
        if rules.exempt_loopback and is_loopback(address) and not always:
            return
        now = self._clock.monotonic()
        name = neighbourhood(address)
        record = self._records.setdefault(name, _Record())
        self._records.move_to_end(name)
        while len(self._records) > MOST_ADDRESSES:
            self._records.popitem(last=False)
        while record.moments and record.moments[0] <= now - rules.window_ms / 1000:
            record.moments.popleft()
        record.moments.append(now)
        if len(record.moments) >= rules.max_attempts:
            record.locked_until = now + rules.lockout_ms / 1000
            record.moments.clear()
