"""Methods over HTTP: `POST /rpc/<method>` with the parameters as body and the result as response."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from retinue.gateway.endpoint import RouteEndpoint, admit, failure_response, json_response, principal_of
from retinue.gateway.errors import explain_failure
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.registry import call_method, load_methods
from retinue.wire.protocol import Scope


async def call(gateway: Gateway, request: Request) -> Response:
    methods, calls = load_methods(), gateway.state.metrics.calls
    name: str = request.path_params["method"]
    if name in methods:
        admit(gateway, request, methods[name].method.scope)
    try:
        params = await request.body()
        result = await call_method(methods, Call(gateway, principal_of(request)), name, params.strip() or b"{}")
    except Exception as error:  # noqa: BLE001 - border: the caller gets an error, and unexpected ones are logged
        failure = explain_failure(error, name)
        calls[name if name in methods else "unknown", failure.code.value] += 1
        return failure_response(failure)
    calls[name, "ok"] += 1
    return json_response(result)


ENDPOINTS = (RouteEndpoint(verb="POST", path="/rpc/{method}", scope=Scope.READ, act=call, in_schema=False),)
