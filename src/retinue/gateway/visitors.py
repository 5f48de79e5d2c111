"""Who is at the door, before anything was proven: from where, and whom a trusted proxy says it is."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.config.sections.gateway import GatewaySettings, TrustedProxy

FORWARDED_FOR = "x-forwarded-for"
MOST_USER_CHARS = 200


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client as it comes in. `user` is the word of a proxy that the configuration trusts, and of nobody else."""

    address: str
    user: str | None = None


def identify(scope: Mapping[str, Any], settings: GatewaySettings) -> Visitor:
    """Who sends a request, as far as the connection itself tells."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not is_within(peer, settings.trusted_proxies):
        return Visitor(peer)
    address = _behind(peer, _values(scope, FORWARDED_FOR), settings.trusted_proxies)
    if settings.auth.mode != "trusted-proxy":
        return Visitor(address)
    rules = settings.auth.trusted_proxy
    if plain_address(peer).is_loopback and not rules.allow_loopback:
        return Visitor(address)
    return Visitor(address, _user(scope, rules))


def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address, without the IPv6 that a listener for both families wraps IPv4 in; raises `ValueError` for none."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether an address is one of some addresses and networks."""
    try:
        found = plain_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network, strict=False) for network in networks)


def _behind(peer: str, chains: Sequence[str], proxies: Sequence[str]) -> str:
    """The client behind trusted proxies: each adds whom it heard from at the end, so only the end can be believed."""
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
    if not user or len(user) > MOST_USER_CHARS or not user.isprintable():
        return None
    if not all(_values(scope, name) for name in rules.required_headers):
        return None
    allowed = {each.strip().lower() for each in rules.allow_users}
    return user if not allowed or user.lower() in allowed else None


def _values(scope: Mapping[str, Any], name: str) -> list[str]:
    wanted = name.strip().lower().encode("latin-1", "replace")
    return [value.decode("latin-1") for found, value in scope["headers"] if found == wanted]
