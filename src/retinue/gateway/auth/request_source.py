"""The source of a request: the client's address, the user that a proxy names, host, origin and process."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from retinue.config.sections.gateway import GatewaySettings, TrustedProxy

FORWARDED_FOR = "x-forwarded-for"
MAX_USER_CHARS = 200
NETWORK_BITS = 64
"""The prefix of an IPv6 address that belongs to one customer, who has all addresses in it."""
DOCUMENTATION_ADDRESS = "192.0.2.1"
"""An address that belongs to nobody; a route to it exists wherever there is a network."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
PROC = Path("/proc")
_PARENT, _LOCAL, _REMOTE, _INODE = 1, 1, 2, 9

Address = tuple[str, int]


class RequestSource(Struct, frozen=True):
    """The source of a request. Only a proxy that the configuration trusts can set `user`."""

    address: str
    user: str | None = None


def find_source(scope: Mapping[str, Any], settings: GatewaySettings) -> RequestSource:
    """The source of a request, before any authentication."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not is_within(peer, settings.trusted_proxies):
        return RequestSource(peer)
    address = _behind(peer, header_values(scope, FORWARDED_FOR), settings.trusted_proxies)
    if settings.auth.mode != "trusted-proxy":
        return RequestSource(address)
    rules = settings.auth.trusted_proxy
    if parse_address(peer).is_loopback and not rules.allow_loopback:
        return RequestSource(address)
    return RequestSource(address, _user(scope, rules))


@lru_cache(maxsize=1024)
def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IP address; IPv4 that is mapped into IPv6 becomes IPv4. Raises `ValueError`."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


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
    given = header_values(scope, rules.user_header or "")
    user = given[0].strip() if len(given) == 1 else ""
    if not user or len(user) > MAX_USER_CHARS or not user.isprintable():
        return None
    if not all(header_values(scope, name) for name in rules.required_headers):
        return None
    allowed = {each.strip().lower() for each in rules.allow_users}
    return user if not allowed or user.lower() in allowed else None


def header_values(scope: Mapping[str, Any], name: str) -> list[str]:
    """All values of a header in an ASGI scope."""
    wanted = name.strip().lower().encode("latin-1", "replace")
    return [value.decode("latin-1") for found, value in scope["headers"] if found == wanted]


def find_network_address() -> str | None:
    """This machine's address in its network: the source address of packets that leave it; None without a network.

    Connecting a UDP socket sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((DOCUMENTATION_ADDRESS, 53))
            own = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if is_loopback(own) else own


def address_for_others(settings: GatewaySettings, url: str) -> str | None:
    """The URL under which other devices reach the gateway at `url`; None if it listens only on this machine."""
    if settings.bind in ("loopback", "auto"):
        return None
    parts = urlsplit(url)
    here = parts.hostname or ""
    host = find_network_address() if here == "localhost" or is_loopback(here) else here
    if host is None:
        return None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"


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


def is_agent_command(scope: Mapping[str, Any], supervisors: Collection[int]) -> bool:
    """Whether a descendant of one of these supervisors opened the connection with this ASGI scope.

    A command without a sandbox runs as the owner's own user and can read the owner's token, so the token does not tell
    the two apart. Their processes do: everything that a command starts is a descendant of its supervisor. Returns False
    if that cannot be determined: on other systems than Linux, or for a process whose files are not readable.
    """
    client, server = scope.get("client"), scope.get("server")
    if not supervisors or not client or not server or sys.platform != "linux":
        return False
    # The address does not matter: a machine can reach itself by any address, and only local sockets are listed.
    inode = find_inode((client[0], client[1]), (server[0], server[1]))
    return inode is not None and any(holds_socket(pid, inode) for pid in find_descendants(supervisors))


def find_inode(local: Address, remote: Address) -> str | None:
    """The inode of the socket with these two ends, from the kernel's tables."""
    wanted = (_format(local), _format(remote))
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if (_last_word(fields[_LOCAL]), _last_word(fields[_REMOTE])) == wanted:
                    return fields[_INODE]
    return None


def find_descendants(roots: Iterable[int]) -> set[int]:
    """The descendants of some processes, including these."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    found, fresh = set(roots), list(roots)
    while fresh:
        below = [pid for pid in children.get(fresh.pop(), ()) if pid not in found]
        found.update(below)
        fresh += below
    return found


def holds_socket(pid: int, inode: str) -> bool:
    """Whether a process has a socket open."""
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(entry) == f"socket:[{inode}]":  # noqa: PTH115 - the target is not a path
                    return True
    return False


def _format(address: Address) -> str:
    """The last 32 bits and the port as the kernel writes them for both families, including mapped IPv4."""
    packed = ipaddress.ip_address(address[0]).packed[-4:]
    return f"{int.from_bytes(packed, sys.byteorder):08X}:{address[1]:04X}"


def _last_word(field: str) -> str:
    host, _, port = field.partition(":")
    return f"{host[-8:]}:{port}"
