"""The listening socket of the gateway, on an address that the settings allow."""

from __future__ import annotations

import errno
import ipaddress
import socket

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.errors import ConfigError, RetinueError

TAILNET = ipaddress.ip_network("100.64.0.0/10")
TAILNET_NAME_SERVER = "100.100.100.100"


def choose_host(settings: GatewaySettings) -> str:
    """The address to listen on; raises `ConfigError` if others could reach it without authentication."""
    proxy = settings.auth.trusted_proxy
    match settings.bind:
        case "loopback" | "auto":
            host = "127.0.0.1"
        case "lan":
            host = "0.0.0.0"  # noqa: S104 - the owner configured it, and auth is required below
        case "custom":
            if settings.custom_bind_host is None:
                raise ConfigError("gateway.bind is 'custom' without an address. Set gateway.customBindHost.")
            host = settings.custom_bind_host
        case "tailnet":
            host = find_tailnet_address()
    if settings.auth.mode == "trusted-proxy" and not (settings.trusted_proxies and proxy.user_header):
        raise ConfigError(
            "gateway.auth.mode is 'trusted-proxy' and no proxy is trusted. Set gateway.trustedProxies and "
            "gateway.auth.trustedProxy.userHeader."
        )
    if settings.auth.mode == "password" and settings.auth.password is None:
        raise ConfigError("gateway.auth.mode is 'password' and there is no password. Set gateway.auth.password.")
    if settings.auth.mode == "none" and not _is_loopback_host(host):
        raise ConfigError(
            f"The gateway would listen on {host} without authentication. Set gateway.auth.mode to 'token', or "
            "gateway.bind to 'loopback'."
        )
    return host


def find_tailnet_address() -> str:
    """This machine's address in its tailnet: the source address of packets to the tailnet's name server.

    Connecting a UDP socket sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((TAILNET_NAME_SERVER, 53))
            own = str(probe.getsockname()[0])
        except OSError:
            own = ""
    if own and ipaddress.ip_address(own) in TAILNET:
        return own
    raise ConfigError(
        "gateway.bind is 'tailnet' and this machine has no tailnet address. Start Tailscale, or set gateway.bind to "
        "'loopback'."
    )


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; raises `RetinueError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named as TCP.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        todo = (
            "Set gateway.customBindHost to an address of this machine."
            if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)
            else "Stop the program that uses the port, or choose another with --port or gateway.port."
        )
        raise RetinueError(f"The gateway cannot listen on {host}:{port}: {error.strerror}. {todo}") from error
    opened.setblocking(False)
    return opened


def address_of(opened: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a client cannot connect to it
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
