"""Rate limit for failed authentication, by address."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque

from retinue.config.sections.gateway import RateLimit
from retinue.core.clock import Clock
from retinue.gateway.auth.client_address import parse_address

MAX_ADDRESSES = 10_000
NETWORK_BITS = 64
"""The prefix of an IPv6 address that belongs to one customer, who has all addresses in it."""


def is_loopback(address: str) -> bool:
    try:
        return parse_address(address).is_loopback
    except ValueError:
        return False


def network_of(address: str) -> str:
    """The network that counts as one client, so that one machine cannot fail under many addresses."""
    try:
        found = parse_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))


class _Record:
    def __init__(self) -> None:
        self.moments: deque[float] = deque()
        self.locked_until = 0.0


class RateLimiter:
    """Counts failures per address; too many within the window lock the address for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def locked_for(self, address: str) -> float:
        """The seconds for which the address is still locked; 0 if it is not."""
        record = self._records.get(network_of(address))
        return max(0.0, record.locked_until - self._clock.monotonic()) if record else 0.0

    def record(self, address: str, rules: RateLimit, *, always: bool = False) -> None:
        """Count a failure. Loopback may be exempt, unless `always` is set because a short code can be guessed."""
        if rules.exempt_loopback and is_loopback(address) and not always:
            return
        now = self._clock.monotonic()
        name = network_of(address)
        record = self._records.setdefault(name, _Record())
        self._records.move_to_end(name)
        while len(self._records) > MAX_ADDRESSES:
            self._records.popitem(last=False)
        while record.moments and record.moments[0] <= now - rules.window_ms / 1000:
            record.moments.popleft()
        record.moments.append(now)
        if len(record.moments) >= rules.max_attempts:
            record.locked_until = now + rules.lockout_ms / 1000
            record.moments.clear()
