"""Which hosts and browser origins may use the gateway."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


def is_allowed_host(hosts: Sequence[str], allowed_origins: Iterable[str]) -> bool:
    """Whether the Host header names this gateway.

    The name of a foreign page can resolve to our address (DNS rebinding). The browser then still sends that name here,
    so only names that no one else can own are allowed: loopback, plain IP addresses, and configured origins.
    """
    name = _host_name(hosts[0]) if len(hosts) == 1 else None
    if name is None:
        return False
    if name in LOOPBACK_NAMES or name in {_origin_host(origin) for origin in allowed_origins}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_allowed_origin(origins: Sequence[str], hosts: Sequence[str], allowed_origins: Iterable[str]) -> bool:
    """Whether the Origin header is absent, names this gateway, or is configured."""
    if not origins:
        return True
    if len(origins) != 1 or len(hosts) != 1:
        return False
    origin = origins[0].strip().lower()
    if origin in {allowed.strip().lower().rstrip("/") for allowed in allowed_origins}:
        return True
    return origin in (f"http://{hosts[0].strip().lower()}", f"https://{hosts[0].strip().lower()}")


def _host_name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host.strip()}")
        _ = parts.port
    except ValueError:
        return None
    plain = not parts.path and not parts.query and not parts.fragment and "@" not in host
    return parts.hostname if plain else None


def _origin_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
