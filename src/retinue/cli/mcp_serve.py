"""`retinue mcp serve`: an MCP server on standard input and output that is a client of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.cli.common import Invocation, keep_logs
from retinue.cli.connect import ConnectOptions, find_remote_gateway, open_remote
from retinue.cli.gateway import start_gateway
from retinue.client import Client, open_local_client
from retinue.core.errors import RetinueError, UsageError
from retinue.toolkit.mcp.servers import NOT_INSTALLED, is_installed
from retinue.wire import codec, system
from retinue.wire.frames import Method, Nothing
from retinue.wire.protocol import Scope, with_implied

if TYPE_CHECKING:
    from retinue.runtime.home import Home

NAME = "mcp"
"""The name of this client in lists and in the messages that it sends."""


class GatewayCaller(Struct, frozen=True, eq=False):
    """The gateway's methods over its WebSocket."""

    _client: Client
    _wanted: frozenset[Scope]

    @property
    def scopes(self) -> frozenset[Scope]:
        hello = self._client.hello
        return self._wanted & frozenset(hello.scopes) if hello is not None else self._wanted

    async def call(self, method: Method[Any, Any], params: dict[str, Any]) -> dict[str, Any]:
        try:
            typed = codec.convert(params, method.params)
        except msgspec.ValidationError as error:
            raise UsageError(f"{error}.") from error
        return codec.to_plain(await self._client.call(method, typed))


async def serve_standard_streams(invocation: Invocation, scopes: Sequence[str]) -> None:
    """Serve one MCP client until it closes the standard input."""
    if not is_installed():
        raise UsageError(NOT_INSTALLED)
    from mcp.server.stdio import stdio_server

    from retinue.gateway.mcp.server import make_server

    wanted = tuple(Scope(scope) for scope in scopes)
    keep_logs(invocation.home)
    async with _open_gateway(invocation, wanted) as client, stdio_server() as (incoming, outgoing):
        caller = GatewayCaller(client, with_implied(wanted))
        server = make_server(lambda _context: caller)
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def _open_gateway(invocation: Invocation, scopes: tuple[Scope, ...]) -> AsyncIterator[Client]:
    """A client with these scopes of the remote gateway, or of the gateway of the home, which is started if needed."""
    home: Home | None = None
    if invocation.gateway_url is None:
        home = invocation.load_home()
    address = find_remote_gateway(invocation, ConnectOptions(NAME), home)
    if address is not None:
        async with open_remote(replace(address, scopes=scopes)) as client:
            yield client
        return
    await anyio.to_thread.run_sync(partial(start_gateway, invocation.home))
    async with open_local_client(invocation.home, name=NAME, scopes=scopes) as local:
        if local is None:
            raise RetinueError("The gateway ended right after its start. `retinue gateway status` says why.")
        await local.call(system.HEALTH, Nothing())
        yield local
