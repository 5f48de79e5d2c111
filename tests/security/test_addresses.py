"""The table of addresses, at both sides of every border."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from retinue.security.network import Zone, classify, parse_address

PUBLIC = [
    *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255"),
    *("192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0"),
    *("223.255.255.255", "168.63.129.15", "168.63.129.17", "2606:4700::1111", "2001:4860::8888", "2001:200::1"),
    *(
        "2003::1",
        "3ffe::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2606:4700::5efe:101:101",
        "2001:db7::1",
        "2001:db9::1",
    ),
]
PRIVATE = [
    *("10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255", "172.16.0.0"),
    *("172.31.255.255", "192.168.0.0", "192.168.255.255", "::1", "fc00::1", "fdff::1", "::ffff:10.0.0.1"),
    *(
        "::ffff:127.0.0.1",
        "64:ff9b::192.168.1.1",
        "::ffff:0:127.0.0.1",
        "2606:4700::5efe:7f00:1",
        "2606:4700::200:5efe:a00:1",
    ),
]
FORBIDDEN = [
    *("0.0.0.0", "0.255.255.255", "169.254.0.0", "169.254.169.254", "169.254.255.255", "192.0.0.0", "192.0.0.255"),
    *("192.0.2.1", "192.88.99.1", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.0"),
    *("239.255.255.255", "240.0.0.0", "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *(
        "::",
        "::7f00:1",
        "::1.1.1.1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "2001::1",
        "2001:0:1:2:3:4:5:6",
    ),
    *(
        "2001:1ff::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:101:101::1",
        "3fff::1",
        "5f00::1",
        "64:ff9b:1::1.1.1.1",
        "4000::1",
    ),
    *(
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2606:4700::5efe:a9fe:a9fe",
        "fd00:ec2::254",
        "fd20:ce::254",
    ),
    *("fc00::5efe:169.254.169.254", "::ffff:0.0.0.0", "::ffff:224.0.0.1"),
]


@pytest.mark.parametrize(
    ("address", "zone"),
    [(a, Zone.PUBLIC) for a in PUBLIC]
    + [(a, Zone.PRIVATE) for a in PRIVATE]
    + [(a, Zone.FORBIDDEN) for a in FORBIDDEN],
)
def test_the_zone_of_an_address(address: str, zone: Zone) -> None:
    assert classify(ip_address(address)) is zone


@pytest.mark.parametrize(
    "host", ["127.1", "127.0.1", "0x7f000001", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "010.0.0.1"]
)
@pytest.mark.parametrize("prefix", ["", "foo."])
def test_legacy_numerals_are_no_addresses(host: str, prefix: str) -> None:
    with pytest.raises(ValueError):
        parse_address(prefix + host)


@pytest.mark.parametrize("host", ["1.2.3.4.5", "256.1.1.1", "1.2.3", "0x", "fe80::1%eth0", "1::2::3", "a.0x1f"])
def test_malformed_addresses_are_refused(host: str) -> None:
    with pytest.raises(ValueError):
        parse_address(host)


def test_names_and_plain_addresses_are_told_apart() -> None:
    assert parse_address("example.com") is None
    assert parse_address("1.com") is None
    assert parse_address("1.2.3.4") == ip_address("1.2.3.4")
    assert parse_address("::1") == ip_address("::1")
