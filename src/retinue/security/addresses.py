"""Classification of IP addresses by a fixed table.

Every address that is not clearly public has its own zone; an IPv4 address inside an IPv6 address is classified as the
IPv4 address.
"""

from __future__ import annotations

import re
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


def _classify_v4(address: IPv4Address) -> Zone:
    if any(address in network for network in _V4_FORBIDDEN):
        return Zone.FORBIDDEN
    if any(address in network for network in _V4_PRIVATE):
        return Zone.PRIVATE
    return Zone.PUBLIC


def _classify_v6(address: IPv6Address) -> Zone:
    if any(address in network for network in _V6_PRIVATE):
        return Zone.PRIVATE
    if address not in _V6_PUBLIC or any(address in network for network in _V6_FORBIDDEN):
        return Zone.FORBIDDEN
    return Zone.PUBLIC


_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


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
