"""Connect a command to an assistant: a remote gateway, the home's gateway if one runs, or a runtime in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from retinue.cli.common import Invocation
    from retinue.client import Client, GatewayAddress
    from retinue.runtime.home import Home
    from retinue.runtime.open import Runtime

ANSWER_SECONDS = 10.0
"""Seconds within which a remote gateway must answer."""

added_skills = click.option(
    "--skill",
    "skills",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Add a skill for this run.",
)


class ConnectOptions(Struct, frozen=True):
    """What a command needs from the assistant."""

    name: str
    """Client name that the gateway shows."""
    skills: tuple[Path, ...] = ()
    """Skills for this run only; a remote gateway cannot read them."""
    asks: bool = False


@asynccontextmanager
async def open_assistant(
    invocation: Invocation, wanted: ConnectOptions, home: Home | None = None
) -> AsyncIterator[tuple[Runtime, Runtime] | tuple[Client, None]]:
    """Yield the assistant, and the runtime if it is one; with a gateway no runtime is imported."""
    from retinue.storage.process_locks import find_instance

    if invocation.gateway_url is None and not wanted.skills and find_instance(invocation.home) is not None:
        from retinue.client import open_local_client

        async with open_local_client(invocation.home, name=wanted.name, asks=wanted.asks) as client:
            if client is not None:
                yield client, None
                return
    if invocation.gateway_url is None and home is None:
        home = invocation.load_home()
    address = find_remote_gateway(invocation, wanted, home)
    if address is not None:
        async with open_remote(address) as client:
            yield client, None
        return

    from retinue.runtime.open import open_runtime

    assert home is not None
    async with open_runtime(home, extra_skills=wanted.skills) as runtime:
        yield runtime, runtime


def find_remote_gateway(invocation: Invocation, wanted: ConnectOptions, home: Home | None) -> GatewayAddress | None:
    """The remote gateway named on the command line or in the configuration, or None."""
    from retinue.core.errors import ConfigError, UsageError

    url, password, token = invocation.gateway_url, None, invocation.gateway_token
    if token is not None:
        invocation.keep_quiet(token)
    if url is None:
        if home is None or home.config.gateway.mode != "remote":
            return None
        from retinue.security.secrets import Secrets

        remote, secrets = home.config.gateway.remote, Secrets(home.environment, home.redactor)
        if remote.url is None:
            raise ConfigError("gateway.mode is remote, but gateway.remote.url is not set. Set it.")
        url = remote.url
        if token is None:
            token = secrets.resolve(remote.token) if remote.token else None
            password = secrets.resolve(remote.password) if remote.password else None
    if wanted.skills:
        raise UsageError(f"--skill cannot be used with the remote gateway at {url}. Omit it.")
    from retinue.client import GatewayAddress  # imports the WebSocket library, which a local turn does not need

    return GatewayAddress(check_url(url), lambda: token, wanted.name, password=password, asks=wanted.asks)


def check_url(url: str) -> str:
    """Return the gateway address as http or https; unencrypted remote addresses are refused."""
    import ipaddress
    from urllib.parse import urlsplit

    from retinue.core.errors import UsageError

    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"'{url}' is not the address of a gateway, such as https://home.example:18790.")
    try:
        near = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname).is_private
    except ValueError:
        near = False
    if scheme == "http" and not near:
        raise UsageError(
            f"{url} is not encrypted: the token could be read on the network. Use https, or a tunnel such as "
            f"`ssh -L 18790:127.0.0.1:18790 {parts.hostname}` and http://127.0.0.1:18790."
        )
    return parts._replace(scheme=scheme).geturl()


@asynccontextmanager
async def open_remote(address: GatewayAddress) -> AsyncIterator[Client]:
    """Yield a client of a remote gateway; raises quickly if it does not answer or refuses the token."""
    from retinue.client import open_client
    from retinue.wire import system
    from retinue.wire.frames import Nothing

    async with open_client(address) as client:
        await client.call(system.HEALTH, Nothing(), patience=ANSWER_SECONDS)
        yield client
