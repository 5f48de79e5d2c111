"""HTTP endpoints: each declares its scope, its body and its result, and checks them before it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retinue.gateway.auth.authenticator import Principal, bearer_token
from retinue.gateway.auth.client_address import find_source
from retinue.gateway.errors import read_json
from retinue.gateway.gateway import Gateway
from retinue.wire import codec
from retinue.wire.frames import Credentials, Failure, Wire
from retinue.wire.protocol import HTTP_STATUS, ErrorCode, Scope

JSON = "application/json"

Act = Callable[..., Awaitable[Response | Wire]]
"""Takes the gateway, the request and, if the endpoint declares one, the decoded body."""
Admit = Callable[[Gateway, Request, Scope], Principal]


def admit(gateway: Gateway, request: Request, scope: Scope) -> Principal:
    """The sender of a request; raises `RequestRefused` if it does not have the scope."""
    token = bearer_token(request.headers.getlist("authorization"))
    source = find_source(request.scope, gateway.auth.settings)
    principal = gateway.auth.admit(Credentials(token=token), source, "http").principal
    principal.require(scope)
    gateway.refuse_agent_command(principal, request.scope)
    return principal


class RouteEndpoint(Struct, frozen=True, kw_only=True):
    """One HTTP operation. A `scope` of None means that no token is required."""

    verb: str
    path: str
    scope: Scope | None
    act: Act
    name: str = ""
    """The name in the OpenAPI document; without one that of the function."""
    summary: str = ""
    body: type[Struct] | None = None
    result: type[Wire] | None = None
    """The type of the response, for the OpenAPI document; None if it has no declared type."""
    media_type: str = JSON
    tags: tuple[str, ...] = ()
    admit: Admit = admit
    in_schema: bool = True

    async def handle(self, request: Request) -> Response:
        """Serve a request: nothing that it sent is read before its sender is known to have the scope."""
        gateway: Gateway = request.app.state.gateway
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
    if failure.code is ErrorCode.TOO_LARGE:
        headers["Connection"] = "close"  # otherwise the server would read the rest of the body
    if failure.retry_after_ms is not None:
        headers["Retry-After"] = str(-(-failure.retry_after_ms // 1000))
    return headers


def failure_body(failure: Failure) -> str:
    """The JSON body of a response that reports an error."""
    return f'{{"error":{codec.encode(failure)}}}'


def failure_response(failure: Failure, status: int | None = None) -> Response:
    """An error as every route reports it."""
    return Response(failure_body(failure), status or HTTP_STATUS[failure.code], failure_headers(failure), JSON)
