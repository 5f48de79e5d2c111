"""The HTTP application: routes from one module per noun, each behind the scope it declares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from retinue import __version__
from retinue.core.errors import RetinueError
from retinue.gateway.gate import Principal, Refused, bearer_token
from retinue.gateway.gateway import Gateway, explain_failure, spell_problems
from retinue.gateway.registry import Entry
from retinue.gateway.visitors import identify
from retinue.wire.frames import Credentials, Failure
from retinue.wire.protocol import HTTP_STATUS, ErrorCode, Scope

ROUTES = (
    "retinue.gateway.routes.health",
    "retinue.gateway.routes.rpc",
    "retinue.gateway.routes.pairing",
    "retinue.gateway.routes.page",
    "retinue.gateway.routes.channels",
    "retinue.gateway.routes.chat",
    "retinue.gateway.routes.responses",
    "retinue.gateway.routes.models",
    "retinue.gateway.routes.embeddings",
    "retinue.gateway.routes.tools",
    "retinue.gateway.routes.hooks",  # last: its place is configured, and takes nothing from the others
)
"""The modules with routes; each has a `make_router(gateway, entries)`. A new noun is a file and a name here."""

PUBLIC = "public"
NEEDS = "x-scope"


def needs(scope: Scope | None) -> dict[str, Any]:
    """What a route declares as its `openapi_extra`: the scope it needs, or None where anybody may come."""
    if scope is None:
        return {NEEDS: PUBLIC, "security": []}
    return {NEEDS: scope.value, "security": [{"token": []}]}


class GuardedRoute(APIRoute):
    """A route that lets in only who may use it, before it looks at anything that was sent.

    A route that does not say what it needs cannot be made.
    """

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        declared = (self.openapi_extra or {}).get(NEEDS)
        if declared is None:
            raise TypeError(f"{self.path} does not declare what it needs; see `needs`")
        scope = None if declared == PUBLIC else Scope(declared)
        inner = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            if scope is not None:
                gateway: Gateway = request.app.state.gateway
                request.state.principal = self.let_in(gateway, request, scope)
            return await inner(request)

        return guarded

    def let_in(self, gateway: Gateway, request: Request, scope: Scope) -> Principal:
        """Who sends a request, where they may; a route that knows more tokens than the gate has its own."""
        return admit(gateway, request, scope)


def make_route_group(route_class: type[GuardedRoute] = GuardedRoute) -> APIRouter:
    """A router whose routes are guarded; every module in `gateway/routes` begins with one."""
    return APIRouter(route_class=route_class)


def admit(gateway: Gateway, request: Request, scope: Scope) -> Principal:
    """Who sends a request, where they may; raises `Refused` where not."""
    token = bearer_token(request.headers.getlist("authorization"))
    visitor = identify(request.scope, gateway.gate.settings)
    principal = gateway.gate.admit(Credentials(token=token), visitor, "http").principal
    principal.require(scope)
    gateway.refuse_commands(principal, request.scope)
    return principal


def principal_of(request: Request) -> Principal:
    """Who sent a request that a guarded route let in."""
    principal: Principal = request.state.principal
    return principal


def read_json(body: bytes) -> object:
    """What a body says; raises `Refused` for one that is no JSON, half of a character pair included."""
    try:
        return from_json(body)
    except ValueError as error:
        raise Refused(ErrorCode.BAD_REQUEST, f"This is not JSON: {error}.") from None


def make_app(gateway: Gateway, entries: Mapping[str, Entry]) -> FastAPI:
    """The application with all routes; its OpenAPI document is made from the code, and not served."""
    app = FastAPI(title="Retinue gateway", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.gateway = gateway
    app.add_exception_handler(RetinueError, _tell_failure)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(RequestValidationError, _tell_invalid)
    app.add_exception_handler(Exception, _tell_failure)
    for module in ROUTES:
        app.include_router(import_module(module).make_router(gateway, entries))
    return app


def failure_response(failure: Failure) -> JSONResponse:
    """An error as every route tells it."""
    headers = {"WWW-Authenticate": "Bearer"} if failure.code is ErrorCode.UNAUTHENTICATED else {}
    if failure.code is ErrorCode.TOO_LARGE:
        headers["Connection"] = "close"  # or the rest of the body would still be read
    if failure.retry_after_ms is not None:
        headers["Retry-After"] = str(-(-failure.retry_after_ms // 1000))
    content = {"error": failure.model_dump(mode="json", by_alias=True, exclude_none=True)}
    return JSONResponse(content, HTTP_STATUS[failure.code], headers)


async def _tell_failure(request: Request, error: Exception) -> Response:
    return failure_response(explain_failure(error, request.url.path))


async def _tell_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return failure_response(Failure.of(ErrorCode.BAD_REQUEST, spell_problems(error.errors(), below=1)))


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = next((code for code, status in HTTP_STATUS.items() if status == error.status_code), ErrorCode.BAD_REQUEST)
    response = failure_response(Failure.of(code, _spell_http(request, error)))
    response.status_code = error.status_code
    return response


def _spell_http(request: Request, error: HTTPException) -> str:
    path = request.url.path[:200]
    match error.status_code:
        case 404:
            return f"There is nothing at {path}. `retinue gateway schema` lists what there is."
        case 405:
            return (
                f"{request.method} is not how {path} is used: {(error.headers or {}).get('Allow', 'see its schema')}."
            )
    return str(error.detail)
