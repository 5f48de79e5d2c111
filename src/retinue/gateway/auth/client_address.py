"""Where a request comes from: the client's address, and the user that a trusted proxy names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from retinue.config.sections.gateway import GatewaySettings, TrustedProxy

FORWARDED_FOR = "x-forwarded-for"
MAX_USER_CHARS = 200


class RequestSource(Struct, frozen=True):
    """The source of a request. Only a proxy that the configuration trusts can set `user`."""

    address: str
    user: str | None = None


def find_source(scope: Mapping[str, Any], settings: GatewaySettings) -> RequestSource:
    """The source of a request, before any authentication."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not is_within(peer, settings.trusted_proxies):
        return RequestSource(peer)
    address = _behind(peer, _values(scope, FORWARDED_FOR), settings.trusted_proxies)
    if settings.auth.mode != "trusted-proxy":
        return RequestSource(address)
    rules = settings.auth.trusted_proxy
    if parse_address(peer).is_loopback and not rules.allow_loopback:
        return RequestSource(address)
    return RequestSource(address, _user(scope, rules))


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IP address; IPv4 that is mapped into IPv6 becomes IPv4. Raises `ValueError`."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether an address is in one of some networks."""
    try:
        found = parse_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network, strict=False) for network in networks)


def _behind(peer: str, chains: Sequence[str], proxies: Sequence[str]) -> str:
    """The client behind trusted proxies. Each proxy appends its own client, so only the end of the list is trusted."""
    for hop in reversed([hop.strip() for chain in chains for hop in chain.split(",")]):
        try:
            ipaddress.ip_address(hop)
        except ValueError:
            return peer
        if not is_within(hop, proxies):
            return hop
    return peer


def _user(scope: Mapping[str, Any], rules: TrustedProxy) -> str | None:
    given = _values(scope, rules.user_header or "")
    user = given[0].strip() if len(given) == 1 else ""
    if not user or len(user) > MAX_USER_CHARS or not user.isprintable():
        return None
    if not all(_values(scope, name) for name in rules.required_headers):
        return None
    allowed = {each.strip().lower() for each in rules.allow_users}
    return user if not allowed or user.lower() in allowed else None


def _values(scope: Mapping[str, Any], name: str) -> list[str]:
    wanted = name.strip().lower().encode("latin-1", "replace")
    return [value.decode("latin-1") for found, value in scope["headers"] if found == wanted]
