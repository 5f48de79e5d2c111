"""The HTTP application: all endpoints, and responses for errors."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from retinue.core.errors import RetinueError
from retinue.gateway.endpoint import RouteEndpoint, failure_response
from retinue.gateway.errors import explain_failure
from retinue.gateway.gateway import Gateway
from retinue.gateway.openai_api import routes as openai_api
from retinue.gateway.routes import channels, health, page, pairing, rpc, tools, webhooks
from retinue.wire.frames import Failure
from retinue.wire.protocol import HTTP_STATUS, ErrorCode


def list_endpoints(*, page_path: str = "", hooks_path: str = "/hooks") -> tuple[RouteEndpoint, ...]:
    """All endpoints; the paths of the chat page and the webhooks are configurable."""
    return (
        *health.ENDPOINTS,
        *rpc.ENDPOINTS,
        *pairing.ENDPOINTS,
        *page.make_endpoints(page_path),
        *channels.ENDPOINTS,
        *openai_api.ENDPOINTS,
        *tools.ENDPOINTS,
        *webhooks.make_endpoints(hooks_path),  # last, so that a configured path cannot hide another endpoint
    )


def make_app(gateway: Gateway) -> Starlette:
    """The application with all endpoints."""
    config = gateway.runtime.home.config
    endpoints = list_endpoints(page_path=config.gateway.control_ui.base_path.rstrip("/"), hooks_path=config.hooks.path)
    app = Starlette(
        routes=[endpoint.make_route() for endpoint in endpoints],
        exception_handlers={
            RetinueError: _respond_to_error,
            HTTPException: _respond_to_http_error,
            Exception: _respond_to_error,
        },
    )
    app.state.gateway = gateway
    return app


async def _respond_to_error(request: Request, error: Exception) -> Response:
    return failure_response(explain_failure(error, request.url.path))


async def _respond_to_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = next((code for code, status in HTTP_STATUS.items() if status == error.status_code), ErrorCode.BAD_REQUEST)
    return failure_response(Failure.of(code, _describe_http_error(request, error)), error.status_code)


def _describe_http_error(request: Request, error: HTTPException) -> str:
    path = request.url.path[:200]
    match error.status_code:
        case 404:
            return f"There is nothing at {path}. `retinue gateway schema` lists all paths."
        case 405:
            allowed = (error.headers or {}).get("Allow", "see the schema")
            return f"{path} does not support {request.method}. Use: {allowed}."
    return str(error.detail)
