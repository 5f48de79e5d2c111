"""Reaching the network."""

from __future__ import annotations

import os
import socket
from typing import Any

from tests.sandbox.probes.attempts import Facts, attempt, probe


def _talk(family: int, kind: int, address: Any) -> str | None:
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        client.send(b"hello")
        return client.recv(100).decode() or None


@probe
def connect_to_the_hosts_loopback(facts: Facts) -> str | None:
    return attempt(
        lambda: _talk(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"])),
        lambda: _talk(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", facts["tcp"])),
        lambda: _talk(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", facts["tcp"])),
    )


@probe
def send_datagrams_to_the_host(facts: Facts) -> str | None:
    return attempt(lambda: _talk(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"])))


@probe
def connect_to_a_unix_socket(facts: Facts) -> str | None:
    return attempt(lambda: _talk(socket.AF_UNIX, socket.SOCK_STREAM, facts["unix"]))


@probe
def connect_to_an_abstract_socket(facts: Facts) -> str | None:
    return attempt(lambda: _talk(socket.AF_UNIX, socket.SOCK_STREAM, facts["abstract"]))


@probe
def connect_to_system_services(facts: Facts) -> str | None:
    paths = (
        *("/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/docker.sock", "/run/systemd/private"),
        *(f"/run/user/{os.getuid()}/bus", "/run/containerd/containerd.sock", "/tmp/.X11-unix/X0"),
    )

    def connect(path: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        return path

    return attempt(*(lambda path=path: connect(path) for path in paths))


@probe
def leave_for_the_internet(facts: Facts) -> str | None:
    def route() -> str | None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("192.0.2.1", 53))
            return str(client.getsockname())

    return attempt(route)


@probe
def see_network_devices(facts: Facts) -> str | None:
    return attempt(lambda: [name for _, name in socket.if_nameindex() if name != "lo"] or None)


@probe
def use_raw_and_exotic_sockets(facts: Facts) -> str | None:
    kinds = (
        (socket.AF_PACKET, socket.SOCK_RAW),
        (socket.AF_INET, socket.SOCK_RAW),
        (socket.AF_NETLINK, socket.SOCK_RAW),
        (socket.AF_VSOCK, socket.SOCK_STREAM),
        (socket.AF_ALG, socket.SOCK_SEQPACKET),
        (29, socket.SOCK_RAW),
        (44, socket.SOCK_RAW),
    )
    return attempt(*(lambda kind=kind: str(socket.socket(*kind)) for kind in kinds))
