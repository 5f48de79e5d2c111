"""The rate limit for failed authentication."""

from __future__ import annotations

import pytest

from retinue.config.sections.gateway import RateLimit
from retinue.gateway.auth.authenticator import RateLimiter
from retinue.gateway.auth.request_source import is_loopback
from retinue.testing.clock import FrozenClock

RULES = RateLimit(max_attempts=2)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("", "", True),
    ],
)
def test_one_machine_cannot_fail_under_many_addresses(first: str, second: str, same: bool) -> None:
    counter = RateLimiter(FrozenClock())
    for address in (first, second):
        counter.record(address, RULES)
    assert bool(counter.locked_for(first)) is same
    assert bool(counter.locked_for(second)) is same


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_exempt_where_the_rules_say_so(address: str) -> None:
    counter = RateLimiter(FrozenClock())
    for _ in range(5):
        counter.record(address, RULES)
    assert not counter.locked_for(address)
    for _ in range(2):
        counter.record(address, RULES, always=True)
    assert counter.locked_for(address)


@pytest.mark.parametrize("address", ["192.0.2.1", "::1234", "::2", "128.0.0.1", "unix", ""])
def test_what_only_looks_like_this_machine_is_not(address: str) -> None:
    assert not is_loopback(address)
