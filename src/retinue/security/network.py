"""Network policy: which hosts and addresses a request may reach, with checks of URLs, hosts and addresses.

A host is resolved once and all of its addresses are checked. `checked_transport` then connects to one of them.
Addresses are classified by a fixed table: every address that is not clearly public has its own zone, and an IPv4
address inside an IPv6 address is classified as the IPv4 address.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from ipaddress import ip_address
from itertools import chain
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from retinue.core.errors import RetinueError

if TYPE_CHECKING:
    import httpx2
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address


class Zone(StrEnum):
    """The zone of an address, from public to always forbidden."""

    PUBLIC = "public"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


_METADATA = frozenset(
    {
        IPv4Address("168.63.129.16"),
        IPv4Address("169.254.169.254"),
        IPv4Address("100.100.100.200"),
        IPv4Address("192.0.0.192"),
        IPv6Address("fd00:ec2::254"),
        IPv6Address("fd20:ce::254"),
        IPv6Address("fd00:c1::a9fe:a9fe"),
    }
)

_V4_PRIVATE = tuple(
    IPv4Network(text) for text in ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
_V4_FORBIDDEN = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "169.254.0.0/16",  # link-local
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

_V6_PUBLIC = IPv6Network("2000::/3")
_V6_PRIVATE = (IPv6Network("::1/128"), IPv6Network("fc00::/7"))
_V6_FORBIDDEN = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, among them Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_MAPPED = (IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("64:ff9b::/96"))
_ISATAP = (0x00005EFE, 0x02005EFE)


def classify(address: Address) -> Zone:
    """Return the zone of an address."""
    if address in _METADATA:
        return Zone.FORBIDDEN
    if isinstance(address, IPv4Address):
        return _classify_v4(address)
    inner = embedded_v4(address)
    if inner is None:
        return _classify_v6(address)
    outer = Zone.PUBLIC if _is_mapped(address) else _classify_v6(address)
    return max(outer, classify(inner), key=list(Zone).index)


def embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address inside a mapped, translated (NAT64) or ISATAP address.

    6to4, Teredo and IPv4-compatible addresses are always refused, so they are not decoded.
    """
    bits = int(address)
    if _is_mapped(address) or (bits >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(bits & 0xFFFFFFFF)
    return None


def _is_mapped(address: IPv6Address) -> bool:
    return any(address in network for network in _MAPPED)


@lru_cache(maxsize=1024)
def _classify_v4(address: IPv4Address) -> Zone:
    if any(address in network for network in _V4_FORBIDDEN):
        return Zone.FORBIDDEN
    if any(address in network for network in _V4_PRIVATE):
        return Zone.PRIVATE
    return Zone.PUBLIC


@lru_cache(maxsize=1024)
def _classify_v6(address: IPv6Address) -> Zone:
    if any(address in network for network in _V6_PRIVATE):
        return Zone.PRIVATE
    if address not in _V6_PUBLIC or any(address in network for network in _V6_FORBIDDEN):
        return Zone.FORBIDDEN
    return Zone.PUBLIC


_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


@lru_cache(maxsize=256)
def parse_address(host: str) -> Address | None:
    """Parse `host` as an address in canonical form; return None for a name.

    Raises `ValueError` for forms that old resolvers accept as an address: `127.1`, `0x7f000001`, `2130706433`,
    `010.0.0.1`.
    """
    if ":" in host:
        if "%" in host:
            raise ValueError("an address with a zone")
        return IPv6Address(host)
    if not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return None
    try:
        return IPv4Address(host)
    except AddressValueError as error:
        raise ValueError("not a plain dotted address") from error


MAX_HEADER_BYTES = 64_000

Resolve = Callable[[str, int], Awaitable[tuple[Address, ...]]]
"""Resolves a host name to addresses."""


class NetworkFailed(RetinueError):
    """A request could not be completed."""


class AddressRefused(NetworkFailed):
    """A request is not allowed: the policy forbids its URL or address."""


class Policy(Struct, frozen=True):
    """Where requests may go.

    `private` allows this machine and the local network; link-local addresses and cloud metadata services stay
    forbidden. `leave_origin` allows redirects to another origin. `allow` contains exact `host:port` exceptions; product
    code never sets it for a URL that a model chose.
    """

    private: bool = False
    leave_origin: bool = True
    allow: frozenset[str] = frozenset()


MODEL_CHOSEN = Policy()
"""For a URL that a model chose, or that a page it read contained."""
OPERATOR = Policy(private=True, leave_origin=False)
"""For an endpoint in the configuration."""


_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog", "metadata", "instance-data"})
_LOCAL_SUFFIXES = (".localhost", ".localdomain", ".local", ".internal", ".home.arpa", ".lan", ".intranet")
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")


def check_host(host: str, policy: Policy) -> Address | None:
    """Check a host before resolving it; return the address if the host is one."""
    address = _read_literal(host)
    if address is not None:
        return address
    name = host.rstrip(".").lower()
    if len(name) > 253 or not _HOST_NAME.fullmatch(name):
        raise AddressRefused(f"'{host}' is not a valid host name.")
    if name in _METADATA_NAMES or name.startswith("instance-data."):
        raise AddressRefused(f"'{host}' is a cloud metadata service; it is never contacted.")
    if not policy.private and (name == "localhost" or name.endswith(_LOCAL_SUFFIXES)):
        raise AddressRefused(f"'{host}' is a local name; only public hosts may be contacted.")
    return None


def _read_literal(host: str) -> Address | None:
    try:
        return parse_address(host.rstrip("."))
    except ValueError:
        raise AddressRefused(
            f"'{host}' is not a plain address. Write it as four decimal numbers, or as plain IPv6."
        ) from None


def check_address(host: str, address: Address, policy: Policy) -> None:
    """Raise `AddressRefused` if the policy forbids `address`, an address of `host`."""
    zone = classify(address)
    if zone is Zone.FORBIDDEN:
        raise AddressRefused(
            f"'{host}' resolves to {address}, which is not a public address: link-local, reserved or metadata service."
        )
    if zone is Zone.PRIVATE and not policy.private:
        raise AddressRefused(f"'{host}' resolves to {address}, which is not a public address; it was not contacted.")


async def resolve_host(host: str, port: int) -> tuple[Address, ...]:
    """Resolve a host name with the system's resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(entry[4][0].partition("%")[0]) for entry in found))


async def find_addresses(host: str, port: int, policy: Policy, resolve: Resolve) -> tuple[Address, ...]:
    """Return all addresses of a host after checking each of them."""
    excepted = f"{host}:{port}" in policy.allow
    literal = _read_literal(host) if excepted else check_host(host, policy)
    if literal is not None:
        addresses: tuple[Address, ...] = (literal,)
    else:
        try:
            addresses = await resolve(host.rstrip("."), port)
        except (OSError, UnicodeError) as error:
            raise NetworkFailed(f"The host '{host}' was not found. Check its spelling.") from error
        if not addresses:
            raise NetworkFailed(f"The host '{host}' has no address.")
    if not excepted:
        for address in addresses:
            check_address(host, address, policy)
    return addresses


async def check_url(url: str, policy: Policy, resolve: Resolve = resolve_host) -> tuple[Address, ...]:
    """Return the checked addresses for a request; raise if `fetch` would refuse the URL."""
    parsed = parse_url(url)
    return await find_addresses(parsed.raw_host.decode("ascii"), port_of(parsed), policy, resolve)


def parse_url(url: str) -> httpx2.URL:
    """Parse a URL; refuse anything but plain HTTP(S) without credentials."""
    import httpx2

    try:
        parsed = httpx2.URL(url.strip()).copy_with(fragment=None)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise AddressRefused(f"'{url}' is not a URL: {error}.") from None
    if parsed.scheme not in ("http", "https"):
        raise AddressRefused(f"'{url}' is not an http or https URL.")
    if parsed.userinfo:
        raise AddressRefused("A URL must not contain a user name or password.")
    if not parsed.host or not 0 < port_of(parsed) < 65536:
        raise AddressRefused(f"'{url}' has no host and port.")
    return parsed


def port_of(url: httpx2.URL) -> int:
    """Return the port of a URL."""
    if url.port is not None:
        return url.port
    return 443 if url.scheme == "https" else 80


def header_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the size of the headers of a response."""
    return sum(map(len, chain.from_iterable(headers)))
