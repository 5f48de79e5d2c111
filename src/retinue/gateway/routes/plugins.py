"""`/plugins/<plugin>/<path>`: the HTTP routes of plugins, behind the same authentication as all others."""

from __future__ import annotations

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from retinue.core.extension import ExtensionPoint, RouteExtension
from retinue.gateway.endpoint import JSON, RouteEndpoint, admit
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Gateway
from retinue.plugins.containment import await_contained, call_contained
from retinue.plugins.manifest import PluginError
from retinue.wire.protocol import ErrorCode, Scope

ROUTE_SECONDS = 60.0
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


async def serve(gateway: Gateway, request: Request) -> Response:
    """Serve a request to a plugin: the sender needs the scope that the route declares."""
    plugin, path = request.path_params["plugin"], request.path_params["path"]
    found = gateway.runtime.home.registry.extensions[ExtensionPoint.HTTP].get(f"{plugin}/{path.strip('/')}")
    if not isinstance(found, RouteExtension):
        admit(gateway, request, Scope.READ)  # which plugins there are is not for everybody
        raise RequestRefused(ErrorCode.NOT_FOUND, f"No plugin serves {request.url.path[:200]}.")
    request.state.principal = admit(gateway, request, Scope(found.scope))
    if request.method not in found.verbs:
        raise RequestRefused(ErrorCode.BAD_REQUEST, f"This route supports {', '.join(found.verbs)}.")
    try:
        handle = await anyio.to_thread.run_sync(call_contained, found.make.load)
        answer = await await_contained(handle, request, seconds=ROUTE_SECONDS)
        return answer if isinstance(answer, Response) else Response(msgspec.json.encode(answer), 200, None, JSON)
    except (PluginError, TypeError) as error:
        raise RequestRefused(ErrorCode.FAILED, f"The plugin '{plugin}' failed: {error}.") from None


ENDPOINTS = tuple(
    RouteEndpoint(verb, "/plugins/{plugin}/{path:path}", None, serve, "A route of a plugin.", in_schema=False)
    for verb in VERBS
)
