"""The address and the user of a client behind a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import ConfigError
from retinue.gateway.auth.request_source import RequestSource, find_source
from retinue.gateway.transport import choose_host
from retinue.structs.decode import DecodeError, decode
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, open_hall, raw_socket

pytestmark = pytest.mark.anyio

PROXY = {"trustedProxies": ["10.0.0.0/24"]}
SIGNED_IN: dict[str, Any] = {
    **PROXY,
    "auth": {
        "mode": "trusted-proxy",
        "trustedProxy": {
            "userHeader": "X-Forwarded-User",
            "requiredHeaders": ["x-forwarded-proto"],
            "allowUsers": ["ada"],
        },
    },
}
LOCAL: dict[str, Any] = {
    "trustedProxies": ["127.0.0.1"],
    "auth": {
        "mode": "trusted-proxy",
        "trustedProxy": {"userHeader": "X-Forwarded-User", "allowUsers": ["ada"], "allowLoopback": True},
    },
}


def visit(peer: str, settings: dict[str, Any], *headers: tuple[str, str]) -> RequestSource:
    scope = {"client": (peer, 4711), "headers": [(name.encode(), value.encode()) for name, value in headers]}
    return find_source(scope, decode(GatewaySettings, settings))


@pytest.mark.parametrize(
    ("peer", "chain", "address"),
    [
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("10.0.0.7", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "203.0.113.9, 10.0.0.3", "203.0.113.9"),
        ("10.0.0.7", "10.0.0.3", "10.0.0.7"),
        ("::ffff:10.0.0.7", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.7", "203.0.113.9, ::ffff:10.0.0.3", "203.0.113.9"),
        ("10.0.0.7", "nonsense", "10.0.0.7"),
        ("10.0.0.7", "203.0.113.9, nonsense", "10.0.0.7"),
    ],
)
def test_only_the_end_of_what_a_trusted_proxy_says_is_believed(peer: str, chain: str, address: str) -> None:
    assert visit(peer, PROXY, ("x-forwarded-for", chain)) == RequestSource(address)


def test_an_address_of_its_own_is_believed_over_what_anybody_says() -> None:
    assert visit("127.0.0.1", {}, ("x-forwarded-for", "203.0.113.9")) == RequestSource("127.0.0.1")


@pytest.mark.parametrize(
    ("peer", "headers", "user"),
    [
        ("10.0.0.7", [("x-forwarded-user", "Ada"), ("x-forwarded-proto", "https")], "Ada"),
        ("10.0.0.7", [("x-forwarded-user", "eve"), ("x-forwarded-proto", "https")], None),
        ("10.0.0.7", [("x-forwarded-user", "ada")], None),
        ("10.0.0.7", [("x-forwarded-proto", "https")], None),
        ("10.0.0.7", [("x-forwarded-user", "ada")] * 2 + [("x-forwarded-proto", "https")], None),
        ("10.0.0.7", [("x-forwarded-user", "  "), ("x-forwarded-proto", "https")], None),
        ("::ffff:10.0.0.7", [("x-forwarded-user", "Ada"), ("x-forwarded-proto", "https")], "Ada"),
        ("192.0.2.1", [("x-forwarded-user", "ada"), ("x-forwarded-proto", "https")], None),
    ],
)
def test_only_a_trusted_proxy_says_who_somebody_is(peer: str, headers: list[tuple[str, str]], user: str | None) -> None:
    assert visit(peer, SIGNED_IN, *headers).user == user


def test_a_proxy_on_this_machine_counts_only_where_that_is_wanted() -> None:
    named = [("x-forwarded-user", "ada"), ("x-forwarded-for", "203.0.113.9")]
    assert visit("127.0.0.1", LOCAL, *named) == RequestSource("203.0.113.9", "ada")
    strict = {**LOCAL, "auth": {**LOCAL["auth"], "trustedProxy": {"userHeader": "X-Forwarded-User"}}}
    assert visit("127.0.0.1", strict, *named) == RequestSource("203.0.113.9")


@pytest.mark.parametrize("missing", [{"trustedProxies": []}, {"auth": {"mode": "trusted-proxy"}}])
def test_a_gateway_that_could_believe_nobody_does_not_start(missing: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="trustedProxies"):
        choose_host(decode(GatewaySettings, {**SIGNED_IN, **missing}))


def test_what_is_no_address_is_no_proxy() -> None:
    with pytest.raises(DecodeError):
        decode(GatewaySettings, {"trustedProxies": ["proxy.example"]})


async def status(hall: Hall, **headers: str) -> int:
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await client.post("/rpc/health", json={}, headers=sent)).status_code


async def test_who_signed_in_at_the_proxy_is_let_in_and_tokens_work_as_well(tmp_path: Path) -> None:
    async with open_hall(tmp_path, gateway=LOCAL) as hall, hall.serving():
        assert await status(hall, x_forwarded_user="ada") == 200
        assert await status(hall, x_forwarded_user="eve") == 401
        assert await status(hall, x_forwarded_user="ada", authorization="Bearer nonsense") == 401
        assert await status(hall) == 401
        async with raw_socket(hall) as raw:
            assert (await raw.result("health"))["ok"]
        async with connect(hall.socket_url, proxy=None, additional_headers={"X-Forwarded-User": "ada"}) as socket:
            raw = RawSocket(socket)
            await raw.send(
                {"type": "req", "id": "1", "method": "connect", "params": {"auth": {"requestPairing": True}}}
            )
            assert (await raw.response("1"))["payload"]["tokenId"] == "proxy:ada"


async def test_nobody_escapes_the_limit_by_claiming_another_address(tmp_path: Path) -> None:
    gateway = {"auth": {"rateLimit": {"maxAttempts": 2, "exemptLoopback": False}}}
    async with open_hall(tmp_path, gateway=gateway) as hall, hall.serving():
        codes = [
            await status(hall, authorization="Bearer wrong", x_forwarded_for=f"203.0.113.{number}")
            for number in range(3)
        ]
        assert codes == [401, 401, 429]
