"""Every method over plain HTTP: `POST /rpc/<method>` with the parameters as body, the result as answer."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from retinue.gateway.app import admit, failure_response, make_route_group, needs, principal_of, read_json
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Call, Gateway, explain_failure
from retinue.gateway.registry import Entry, call_method
from retinue.wire.protocol import ErrorCode, Scope


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()

    @router.post("/rpc/{method}", openapi_extra=needs(Scope.READ), include_in_schema=False)
    async def call(method: str, request: Request) -> Response:
        if method in entries:
            admit(gateway, request, entries[method].method.scope)
        try:
            result = await call_method(
                entries, Call(gateway, principal_of(request)), method, await _read_params(request)
            )
        except Exception as error:  # noqa: BLE001 - border: told to the caller, and logged where it was not foreseen
            failure = explain_failure(error, method)
            gateway.meters.calls[method if method in entries else "unknown", failure.code.value] += 1
            return failure_response(failure)
        gateway.meters.calls[method, "ok"] += 1
        return Response(result.model_dump_json(by_alias=True), media_type="application/json")

    return router


async def _read_params(request: Request) -> dict[str, object]:
    body = await request.body()
    params = read_json(body) if body.strip() else {}
    if not isinstance(params, dict):
        raise Refused(ErrorCode.BAD_REQUEST, "The body must be an object with the method's parameters.")
    return params
