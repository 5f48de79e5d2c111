"""The protocol over HTTP: `POST /rpc/<method>`, and `POST /pair` for a device that has a pairing code."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from retinue.gateway.auth.member_access import require_anywhere
from retinue.gateway.auth.request_source import find_source
from retinue.gateway.endpoint import RouteEndpoint, failure_response, json_response, principal_of
from retinue.gateway.errors import explain_failure
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.methods.registry import call_method
from retinue.gateway.methods.table import gateway_methods
from retinue.wire.frames import Credentials, Name, Params, Wire
from retinue.wire.protocol import Scope


async def call(gateway: Gateway, request: Request) -> Response:
    methods, calls = gateway_methods(gateway), gateway.state.metrics.calls
    name: str = request.path_params["method"]
    if name in methods:
        require_anywhere(principal_of(request), methods[name].method.scope)  # before the body is read
    try:
        params = await request.body()
        result = await call_method(methods, Call(gateway, principal_of(request)), name, params.strip() or b"{}")
    except Exception as error:  # noqa: BLE001 - border: the caller gets an error, and unexpected ones are logged
        failure = explain_failure(error, name)
        calls[name if name in methods else "unknown", failure.code.value] += 1
        return failure_response(failure)
    calls[name, "ok"] += 1
    return json_response(result)


class PairRequest(Params, frozen=True):
    """The pairing code, and the name of the device in lists."""

    code: Annotated[str, Meta(min_length=4, max_length=40)]
    name: Name = "a device"


class Paired(Wire, frozen=True):
    """The device's token; it is sent once."""

    token: str
    token_id: str
    scopes: list[Scope]


async def pair(gateway: Gateway, request: Request, body: PairRequest) -> Paired:
    source = find_source(request.scope, gateway.auth.settings)
    admission = gateway.auth.admit(Credentials(pairing_code=body.code), source, body.name)
    assert admission.token is not None
    principal = admission.principal
    return Paired(admission.token, principal.token_id, sorted(principal.scopes))


ENDPOINTS = (
    RouteEndpoint("POST", "/rpc/{method}", Scope.READ, call, in_schema=False),
    RouteEndpoint("POST", "/pair", None, pair, "Get a token for a pairing code.", PairRequest, Paired),
)
