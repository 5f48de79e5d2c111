"""Who a command talks to: a gateway elsewhere, the gateway of the home where one runs, else a runtime of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from retinue.cli.common import Invocation
    from retinue.client import Client, GatewayAddress
    from retinue.runtime.foundation import Foundation
    from retinue.runtime.runtime import Runtime

ANSWER_SECONDS = 10.0
"""How long a gateway elsewhere may take to be there at all."""


class Wanted(Struct, frozen=True):
    """What a command wants of whomever it talks to."""

    name: str
    """What the program calls itself."""
    skills: tuple[Path, ...] = ()
    """Skills for one run alone, which are nothing that a gateway could know of."""
    asks: bool = False


@asynccontextmanager
async def open_assistant(
    invocation: Invocation, wanted: Wanted, foundation: Foundation | None = None
) -> AsyncIterator[tuple[Runtime, Runtime] | tuple[Client, None]]:
    """An assistant while the block runs, and again where it is a runtime; with a gateway none is imported."""
    from retinue.storage.instance import find_instance

    if invocation.gateway_url is None and not wanted.skills and find_instance(invocation.home) is not None:
        from retinue.client import open_local_client

        async with open_local_client(invocation.home, name=wanted.name, asks=wanted.asks) as client:
            if client is not None:
                yield client, None
                return
    if invocation.gateway_url is None and foundation is None:
        foundation = invocation.lay_foundation()
    door = find_door(invocation, wanted, foundation)
    if door is not None:
        async with open_elsewhere(door) as client:
            yield client, None
        return

    from retinue.runtime.runtime import open_runtime

    assert foundation is not None
    async with open_runtime(foundation, extra_skills=wanted.skills) as runtime:
        yield runtime, runtime


def find_door(invocation: Invocation, wanted: Wanted, foundation: Foundation | None) -> GatewayAddress | None:
    """The way into a gateway elsewhere, from the command line or the configuration; None where there is none."""
    from retinue.client import GatewayAddress
    from retinue.core.errors import ConfigError, UsageError
    from retinue.security.secrets import Secrets

    url, password, token = invocation.gateway_url, None, invocation.gateway_token
    if token is not None:
        invocation.keep_quiet(token)
    if url is None:
        if foundation is None or foundation.config.gateway.mode != "remote":
            return None
        remote, secrets = foundation.config.gateway.remote, Secrets(foundation.environment, foundation.redactor)
        if remote.url is None:
            raise ConfigError("gateway.mode is remote, and gateway.remote.url does not say where. Set it.")
        url = remote.url
        if token is None:
            token = secrets.resolve(remote.token) if remote.token else None
            password = secrets.resolve(remote.password) if remote.password else None
    if wanted.skills:
        raise UsageError(f"A skill for one run cannot be taken to the gateway at {url}. Leave --skill out.")
    return GatewayAddress(check_url(url), lambda: token, wanted.name, password=password, asks=wanted.asks)


def check_url(url: str) -> str:
    """The address of a gateway as http or https; refused where what is said could be read on its way."""
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
            f"{url} is not encrypted: everybody on the way could read the token. Use https, or a tunnel such as "
            f"`ssh -L 18790:127.0.0.1:18790 {parts.hostname}` and http://127.0.0.1:18790."
        )
    return parts._replace(scheme=scheme).geturl()


@asynccontextmanager
async def open_elsewhere(door: GatewayAddress) -> AsyncIterator[Client]:
    """A client of a gateway elsewhere; raises soon where there is none or it refuses."""
    from retinue.client import open_client
    from retinue.wire import system
    from retinue.wire.frames import Nothing

    async with open_client(door) as client:
        await client.call(system.HEALTH, Nothing(), patience=ANSWER_SECONDS)
        yield client
