"""Webhooks: other programs wake an agent or give it a task, with a token of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from starlette.requests import Request

from retinue.automation.webhooks import HookRefused
from retinue.gateway.auth.authenticator import bearer_token
from retinue.gateway.auth.client_address import find_source
from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.errors import RequestRefused, read_plain_json
from retinue.gateway.gateway import Gateway
from retinue.runtime.automation.webhooks import read_request
from retinue.wire.frames import Wire
from retinue.wire.protocol import ErrorCode

HEADER = "x-retinue-token"
_CODES = {403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND, 422: ErrorCode.FAILED}
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", HEADER})
"""Headers with credentials, which a webhook's template must not read."""


class HookAccepted(Wire, frozen=True):
    """Whether the request was accepted, waits for the next heartbeat, or was skipped by a filter."""

    status: Literal["accepted", "next-heartbeat", "skipped"] = "accepted"
    run_id: str | None = None


async def hook(gateway: Gateway, request: Request) -> HookAccepted:
    settings = gateway.runtime.home.config.hooks
    if not settings.enabled:
        raise RequestRefused(ErrorCode.NOT_FOUND, "Webhooks are disabled (hooks.enabled).")
    if settings.token is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, "Webhooks need a token: set hooks.token.")
    given = bearer_token(request.headers.getlist("authorization")) or request.headers.get(HEADER)
    gateway.auth.check_secret(given, settings.token, find_source(request.scope, gateway.auth.settings).address)
    body = _read_body(await request.body(), settings.max_body_bytes)
    try:
        headers = {header: text for header, text in request.headers.items() if header not in _PRIVATE_HEADERS}
        task = await read_request(gateway.runtime.home, request.path_params["name"], body, headers)
        if task is None:
            return HookAccepted("skipped")
        run = await gateway.background.hooks.take(task)
    except HookRefused as refusal:
        raise RequestRefused(_CODES.get(refusal.status, ErrorCode.BAD_REQUEST), str(refusal)) from refusal
    return HookAccepted("accepted" if run else "next-heartbeat", run)


def _read_body(raw: bytes, limit: int) -> Mapping[str, Any]:
    if len(raw) > limit:
        raise RequestRefused(ErrorCode.TOO_LARGE, f"The request is larger than {limit:,} bytes (hooks.maxBodyBytes).")
    body = read_plain_json(raw)
    if not isinstance(body, dict):
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The request must be a JSON object.")
    return body


def make_endpoints(path: str) -> Sequence[RouteEndpoint]:
    """The endpoint of all webhooks under a path."""
    summary = "Give an agent a task."
    return [
        RouteEndpoint(
            verb="POST", path=f"{path}/{{name:path}}", scope=None, act=hook, result=HookAccepted, summary=summary
        )
    ]
