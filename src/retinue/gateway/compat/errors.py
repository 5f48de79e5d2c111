"""Errors in the shape that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from retinue.config.sections.gateway import HttpEndpoint
from retinue.gateway.app import GuardedRoute, failure_response
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Gateway, explain_failure, spell_problems
from retinue.wire.frames import Failure
from retinue.wire.protocol import ErrorCode

_MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

_TYPES = {
    ErrorCode.UNAUTHENTICATED: "authentication_error",
    ErrorCode.FORBIDDEN: "permission_error",
    ErrorCode.RATE_LIMITED: "rate_limit_error",
    ErrorCode.BUSY: "overloaded_error",
    ErrorCode.SHUTTING_DOWN: "overloaded_error",
    ErrorCode.FAILED: "api_error",
    ErrorCode.INTERNAL: "server_error",
}
"""What kind of error each code is; the rest are mistakes of the request."""

TAGS = frozenset({"openai", "tools"})
"""The tags of operations whose errors have this shape."""
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
"""The shape, for the OpenAPI document."""


class BadField(Refused):
    """A field of a request asks for something that is not there; `param` is its name."""

    def __init__(
        self, param: str, message: str, *, code: ErrorCode = ErrorCode.BAD_REQUEST, kind: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.param = param
        self.kind = kind


def to_json(value: object) -> str:
    """JSON in ASCII: half a character pair from a broken client is escaped like any other."""
    return json.dumps(value, separators=(",", ":"))


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, "application/json")


def error_body(failure: Failure, error: Exception | None = None) -> dict[str, Any]:
    """A failure as OpenAI's clients read it."""
    param = error.param if isinstance(error, BadField) else None
    kind = error.kind if isinstance(error, BadField) and error.kind else failure.code.value
    kind_of_error = _TYPES.get(failure.code, "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind_of_error, "param": param, "code": kind}}


class CompatRoute(GuardedRoute):
    """A guarded route whose errors have OpenAI's shape, and whose calls are counted."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        inner = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                response = await inner(request)
                outcome = "ok" if response.status_code < 400 else "failed"
            except Exception as error:  # noqa: BLE001 - border: told to the caller, and logged where it was not foreseen
                failure, cause = _explain(error, self.path)
                response, outcome = _tell(failure, cause), failure.code.value
            if hasattr(request.state, "principal"):
                gateway: Gateway = request.app.state.gateway
                gateway.meters.calls[self.path, outcome] += 1
            return response

        return told


def make_compat_group() -> APIRouter:
    """A router for one of the interfaces here."""
    return APIRouter(route_class=CompatRoute, dependencies=[Depends(refuse_half_characters)])


async def refuse_half_characters(request: Request) -> None:
    """Refuse a body with half of a character pair: JSON can spell it, but no model can be sent it."""
    body = await request.body()
    if _MAYBE_HALF.search(body):
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refused(ErrorCode.BAD_REQUEST, "The body holds half of a character pair (`\\ud800`…).") from None


def _explain(error: Exception, what: str) -> tuple[Failure, Exception]:
    match error:
        case RequestValidationError():
            problems = error.errors()
            first = ".".join(map(str, problems[0]["loc"][1:]))
            bad = BadField(first, spell_problems(problems, below=1))
            return explain_failure(bad, what), bad
        case HTTPException(__cause__=Refused() as cause):
            return explain_failure(cause, what), cause
        case HTTPException():
            refused = Refused(ErrorCode.BAD_REQUEST, f"The body cannot be read: {error.detail}.")
            return explain_failure(refused, what), refused
    return explain_failure(error, what), error


def _tell(failure: Failure, error: Exception) -> Response:
    plain = failure_response(failure)
    headers = {name: value for name, value in plain.headers.items() if name not in ("content-length", "content-type")}
    # OpenAI's clients send again what failed with 409 or 5xx; a message that was accepted must not be sent twice.
    headers["x-should-retry"] = "true" if failure.retryable else "false"
    return json_response(error_body(failure, error), plain.status_code, headers)


def refuse_switched_off(endpoint: HttpEndpoint, name: str) -> None:
    """Raise `Refused` where the configuration does not serve an interface."""
    if not endpoint.enabled:
        raise Refused(ErrorCode.NOT_FOUND, f"This is switched off: gateway.http.endpoints.{name}.enabled.")
