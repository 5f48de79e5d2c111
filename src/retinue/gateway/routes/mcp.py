"""`POST /mcp`: the Model Context Protocol over streamable HTTP.

Every request is authenticated by its token and stands for itself; there are no sessions that another client could use.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from retinue.core.errors import RetinueError
from retinue.gateway.endpoint import RouteEndpoint, principal_of
from retinue.gateway.errors import RequestRefused, explain_failure
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.registry import call_method
from retinue.gateway.methods.table import all_methods
from retinue.wire import codec
from retinue.wire.frames import Method
from retinue.wire.protocol import MAX_FRAME_BYTES, ErrorCode, Scope

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

NOT_INSTALLED = "The MCP endpoint needs the package `mcp`. Install it with `pip install 'retinue[mcp]'`."


class PrincipalCaller(Struct, frozen=True, eq=False):
    """The gateway's methods, as the sender of an HTTP request may call them."""

    _call: Call

    @property
    def scopes(self) -> frozenset[Scope]:
        return self._call.principal.scopes

    async def call(self, method: Method[Any, Any], params: dict[str, Any]) -> dict[str, Any]:
        calls = self._call.gateway.state.metrics.calls
        try:
            result = await call_method(all_methods(), self._call, method.name, json.dumps(params).encode())
        except Exception as error:  # border: the caller gets an error, and unexpected ones are logged
            failure = explain_failure(error, method.name)
            calls[method.name, failure.code.value] += 1
            raise RetinueError(failure.message) from error
        calls[method.name, "ok"] += 1
        return codec.to_plain(result)


class McpResponse(Response):
    """The response of the SDK, which reads the request itself."""

    def __init__(self, server: Server[Any]) -> None:
        super().__init__()
        self._server = server

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=MAX_FRAME_BYTES)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def serve(gateway: Gateway, request: Request) -> Response:
    """Serve a request of an MCP client with the rights of its token."""
    if importlib.util.find_spec("mcp") is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, NOT_INSTALLED)
    caller = PrincipalCaller(Call(gateway, principal_of(request)))
    make_server = await anyio.to_thread.run_sync(_import_server)
    return McpResponse(make_server(lambda _context: caller))


def _import_server() -> Any:
    """Import the SDK in a thread: it takes long, and other requests should not wait."""
    import logging

    from retinue.gateway.mcp.server import make_server

    logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)
    return make_server


ENDPOINTS = (RouteEndpoint("POST", "/mcp", Scope.READ, serve, in_schema=False),)
