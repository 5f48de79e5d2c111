"""Endpoints whose errors have OpenAI's format: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from retinue.config.sections.gateway import HttpEndpoint
from retinue.gateway.endpoint import JSON, RouteEndpoint, failure_headers
from retinue.gateway.errors import BadField, RequestRefused, explain_failure
from retinue.gateway.gateway import Gateway
from retinue.wire.frames import Failure
from retinue.wire.protocol import HTTP_STATUS, ErrorCode

_TYPES = {
    ErrorCode.UNAUTHENTICATED: "authentication_error",
    ErrorCode.FORBIDDEN: "permission_error",
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.BUSY: "overloaded_error",
    ErrorCode.SHUTTING_DOWN: "overloaded_error",
    ErrorCode.FAILED: "api_error",
    ErrorCode.INTERNAL: "server_error",
}
"""The type of error for each code; all others are `invalid_request_error`."""

TAGS = frozenset({"openai", "tools"})
"""The tags of operations whose errors have this format."""
PROBLEM: dict[str, Any] = {
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
"""The format, for the OpenAPI document."""


def to_json(value: object) -> str:
    """JSON in ASCII: a lone surrogate is escaped like any other character."""
    return json.dumps(value, separators=(",", ":"))


def plain_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, JSON)


def error_body(failure: Failure, error: Exception | None = None) -> dict[str, Any]:
    """A failure in OpenAI's format."""
    param = error.param if isinstance(error, BadField) else None
    kind = error.kind if isinstance(error, BadField) and error.kind else failure.code.value
    kind_of_error = _TYPES.get(failure.code, "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind_of_error, "param": param, "code": kind}}


class OpenAIEndpoint(RouteEndpoint, frozen=True, kw_only=True):
    """An endpoint whose errors have OpenAI's format, and whose calls are counted."""

    async def handle(self, request: Request) -> Response:
        try:
            response = await super().handle(request)
            outcome = "ok" if response.status_code < 400 else "failed"
        except Exception as error:  # noqa: BLE001 - border: the caller gets an error, and unexpected ones are logged
            failure = explain_failure(error, self.path)
            response, outcome = _error_response(failure, error), failure.code.value
        if hasattr(request.state, "principal"):
            gateway: Gateway = request.app.state.gateway
            gateway.state.metrics.calls[self.path, outcome] += 1
        return response


def _error_response(failure: Failure, error: Exception) -> Response:
    headers = failure_headers(failure)
    # OpenAI's clients repeat requests that failed with 409 or 5xx; an accepted message must not be sent twice.
    headers["x-should-retry"] = "true" if failure.retryable else "false"
    return plain_response(error_body(failure, error), HTTP_STATUS[failure.code], headers)


def refuse_if_disabled(endpoint: HttpEndpoint, name: str) -> None:
    """Raise `RequestRefused` if the configuration disables an endpoint."""
    if not endpoint.enabled:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"This endpoint is disabled (gateway.http.endpoints.{name}.enabled).")
