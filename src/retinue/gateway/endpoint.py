"""HTTP endpoints: each declares its scope, its body and its result, and checks them before it runs.

Errors have the format of the protocol, or OpenAI's: `{"error": {"message", "type", "param", "code"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retinue.config.sections.gateway import HttpEndpoint
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.auth.member_access import require_anywhere, require_path
from retinue.gateway.auth.request_source import find_source
from retinue.gateway.errors import BadField, ProviderFailed, RequestRefused, explain_failure, read_json
from retinue.gateway.gateway import Gateway
from retinue.wire import codec
from retinue.wire.frames import Credentials, Failure, Wire
from retinue.wire.protocol import HTTP_STATUS, ErrorCode, Scope

JSON = "application/json"
_OPENAI_TYPES = {
    ErrorCode.UNAUTHENTICATED: "authentication_error",
    ErrorCode.FORBIDDEN: "permission_error",
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.BUSY: "overloaded_error",
    ErrorCode.SHUTTING_DOWN: "overloaded_error",
    ErrorCode.FAILED: "api_error",
    ErrorCode.INTERNAL: "server_error",
}
"""OpenAI's type of error for each code; all others are `invalid_request_error`."""
OPENAI_TAGS = frozenset({"openai", "tools"})
"""The tags of operations whose errors have OpenAI's format."""
OPENAI_PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
"""OpenAI's format of errors, for the OpenAPI document."""

Act = Callable[..., Awaitable[Response | Wire]]
"""Takes the gateway, the request and, if the endpoint declares one, the decoded body."""
Admit = Callable[[Gateway, Request, Scope], Principal]


def admit(gateway: Gateway, request: Request, scope: Scope) -> Principal:
    """The sender of a request; raises `RequestRefused` if it does not have the scope."""
    settings = gateway.auth.settings
    credentials = Credentials(token=request.state.token)
    principal = gateway.auth.admit(credentials, find_source(request.scope, settings), "http").principal
    require_anywhere(principal, scope)
    require_path(principal, request.url.path, settings.control_ui.base_path.rstrip("/"))
    gateway.refuse_agent_command(principal, request.scope)
    return principal


class RouteEndpoint(Struct, frozen=True):
    """One HTTP operation. A `scope` of None means that no token is required."""

    verb: str
    path: str
    scope: Scope | None
    act: Act
    summary: str = ""
    body: type[Struct] | None = None
    result: type[Wire] | None = None
    """The type of the response, for the OpenAPI document; None if it has no declared type."""
    name: str = ""
    """The name in the OpenAPI document; without one that of the function."""
    media_type: str = JSON
    tags: tuple[str, ...] = ()
    admit: Admit = admit
    in_schema: bool = True

    async def handle(self, request: Request) -> Response:
        """Serve a request: nothing that it sent is read before its sender is known to have the scope."""
        gateway: Gateway = request.app.state.gateway
        request.state.token = await gateway.find_token(request.scope)
        if self.scope is not None:
            request.state.principal = self.admit(gateway, request, self.scope)
        body = () if self.body is None else (read_json(await request.body(), self.body),)
        found = await self.act(gateway, request, *body)
        return found if isinstance(found, Response) else json_response(found)

    def make_route(self) -> Route:
        route = Route(self.path, self.handle, methods=[self.verb])
        if route.methods is not None:
            route.methods.discard("HEAD")  # added to GET by the framework; no operation here declares it
        return route


def principal_of(request: Request) -> Principal:
    """The sender of a request to an endpoint with a scope."""
    principal: Principal = request.state.principal
    return principal


def json_response(value: Wire, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(codec.encode(value), status, headers, JSON)


def failure_headers(failure: Failure) -> dict[str, str]:
    """The headers of a response that reports an error."""
    headers = {"WWW-Authenticate": "Bearer"} if failure.code is ErrorCode.UNAUTHENTICATED else {}
    if failure.code in (ErrorCode.TOO_LARGE, ErrorCode.TIMED_OUT):
        headers["Connection"] = "close"  # otherwise the server would read the rest of the body
    if failure.retry_after_ms is not None:
        headers["Retry-After"] = str(-(-failure.retry_after_ms // 1000))
    return headers


def failure_response(failure: Failure, status: int | None = None, *, openai: bool = False) -> Response:
    """An error as every route reports it, or in OpenAI's format."""
    body = to_json(error_body(failure)) if openai else f'{{"error":{codec.encode(failure)}}}'
    return Response(body, status or HTTP_STATUS[failure.code], failure_headers(failure), JSON)


def to_json(value: object) -> str:
    """JSON in ASCII: a lone surrogate is escaped like any other character."""
    return json.dumps(value, separators=(",", ":"))


def plain_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, JSON)


def error_body(failure: Failure, error: Exception | None = None) -> dict[str, Any]:
    """A failure in OpenAI's format."""
    param = error.param if isinstance(error, BadField) else None
    kind = (error.kind if isinstance(error, BadField | ProviderFailed) else None) or failure.code.value
    kind_of_error = _OPENAI_TYPES.get(failure.code, "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind_of_error, "param": param, "code": kind}}


class OpenAIEndpoint(RouteEndpoint, frozen=True):
    """An endpoint whose errors have OpenAI's format, and whose calls are counted."""

    tags: tuple[str, ...] = ("openai",)

    async def handle(self, request: Request) -> Response:
        try:
            response = await super().handle(request)
            outcome = "ok" if response.status_code < 400 else "failed"
        except Exception as error:  # noqa: BLE001 - border: the caller gets an error, and unexpected ones are logged
            failure = explain_failure(error, self.path)
            headers = failure_headers(failure)
            of_provider = isinstance(error, ProviderFailed)
            if of_provider:
                headers.pop("WWW-Authenticate", None)  # it is not the client's token that was refused
            # OpenAI's clients repeat requests that failed with 409, 429 or 5xx; an accepted message must not be sent
            # twice.
            headers["x-should-retry"] = "true" if failure.retryable and not of_provider else "false"
            status = error.status if isinstance(error, ProviderFailed) else HTTP_STATUS[failure.code]
            response = plain_response(error_body(failure, error), status, headers)
            outcome = failure.code.value
        if hasattr(request.state, "principal"):
            gateway: Gateway = request.app.state.gateway
            gateway.state.metrics.calls[self.path, outcome] += 1
        return response


def refuse_if_disabled(endpoint: HttpEndpoint, name: str) -> None:
    """Raise `RequestRefused` if the configuration disables an endpoint."""
    if not endpoint.enabled:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"This endpoint is disabled (gateway.http.endpoints.{name}.enabled).")
