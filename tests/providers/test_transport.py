"""The rules for endpoints that the operator configured."""

from __future__ import annotations

import ipaddress

import pytest

from retinue.core.errors import ConfigError
from retinue.core.model import Failure
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed
from retinue.providers.transport import BodyGauge, check_endpoint, is_forbidden, open_client
from retinue.testing.modelserver import ModelServer


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434", "http://10.0.0.5/v1", "https://api.example.com/v1", "http://[::1]:8080"]
)
def test_private_and_public_endpoints_may_be_used(url: str) -> None:
    assert check_endpoint(url + "/") == url


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://0.0.0.0/",
        "http://2852039166/",
        "http://0xa9.254.169.254/",
        "file:///etc/passwd",
        "ftp://example.com",
        "example.com/v1",
        "https://user:password@example.com/v1",
    ],
)
def test_endpoints_that_can_never_be_right_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_endpoint(url)


def test_names_are_decided_on_the_connection() -> None:
    assert not is_forbidden("metadata.google.internal")
    assert is_forbidden("fe80::1%eth0")


@pytest.mark.anyio
async def test_the_address_behind_the_connection_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to a forbidden address: here loopback is declared forbidden, as no metadata service is near."""
    loopback = frozenset({ipaddress.ip_address("127.0.0.1")})
    monkeypatch.setattr("retinue.security.addresses._METADATA", loopback)
    async with ModelServer() as server, open_client(Timeouts()) as client:
        with pytest.raises(CallFailed) as caught:
            await client.get(f"http://localhost:{server.port}/api/tags")
        assert caught.value.reason is Failure.CONNECTION
        assert not server.requests


def test_a_line_may_be_long_but_not_endless() -> None:
    gauge = BodyGauge(longest_line=10, longest_body=1000)
    for _ in range(5):
        gauge.measure(b"123456789\n12345")
        gauge.measure(b"6789\n")
    gauge.measure(b"12345")
    gauge.measure(b"12345")
    with pytest.raises(CallFailed):
        gauge.measure(b"1")


def test_a_body_has_an_end() -> None:
    gauge = BodyGauge(longest_line=10, longest_body=20)
    gauge.measure(b"123456\n" * 2)
    with pytest.raises(CallFailed):
        gauge.measure(b"123456\n")


def test_characters_may_be_split_but_not_broken() -> None:
    gauge = BodyGauge()
    for byte in "世界".encode():
        gauge.measure(bytes([byte]))
    with pytest.raises(CallFailed):
        gauge.measure(b"\xff")
