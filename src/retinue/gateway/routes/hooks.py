"""Webhooks: other programs wake an agent or give it something to do, with a token of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import ConfigDict

from retinue.automation.webhooks import HookRefused
from retinue.gateway.app import make_route_group, needs, read_json
from retinue.gateway.gate import Refused, bearer_token
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.gateway.visitors import identify
from retinue.runtime.automation.webhooks import understand
from retinue.wire.frames import Wire
from retinue.wire.protocol import ErrorCode

HEADER = "x-retinue-token"
_CODES = {403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND, 422: ErrorCode.FAILED}
_KEPT_BACK = frozenset({"authorization", "cookie", "proxy-authorization", HEADER})
"""Headers that are nobody's business but the gate's."""


class HookAccepted(Wire):
    """What became of the request: kept for good and answered later, kept for the next heartbeat, or not wanted."""

    model_config = ConfigDict(defer_build=False)

    status: Literal["accepted", "next-heartbeat", "skipped"] = "accepted"
    run_id: str | None = None


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()
    place = _place(gateway)

    @router.post(f"{place}/{{name:path}}", openapi_extra=needs(None), summary="Give an agent something to do.")
    async def hook(name: str, request: Request) -> HookAccepted:
        settings = gateway.runtime.home.config.hooks
        if not settings.enabled:
            raise Refused(ErrorCode.NOT_FOUND, "Webhooks are not served (hooks.enabled).")
        if settings.token is None:
            raise Refused(ErrorCode.NOT_FOUND, "Webhooks are not served before they have a token: set hooks.token.")
        given = bearer_token(request.headers.getlist("authorization")) or request.headers.get(HEADER)
        address = identify(request.scope, gateway.gate.settings).address
        gateway.gate.check_secret(given, settings.token, address)
        body = _read(await request.body(), settings.max_body_bytes)
        try:
            headers = {header: text for header, text in request.headers.items() if header not in _KEPT_BACK}
            task = await understand(gateway.runtime.home, name, body, headers)
            if task is None:
                return HookAccepted(status="skipped")
            run = await gateway.hooks.take(task)
        except HookRefused as refusal:
            raise Refused(_CODES.get(refusal.status, ErrorCode.BAD_REQUEST), str(refusal)) from refusal
        return HookAccepted(status="accepted" if run else "next-heartbeat", run_id=run)

    return router


def _place(gateway: Gateway | None) -> str:
    """Where webhooks are; the protocol's documents are made from routes without a gateway."""
    return gateway.runtime.home.config.hooks.path if gateway is not None else "/hooks"


def _read(raw: bytes, most: int) -> Mapping[str, Any]:
    if len(raw) > most:
        raise Refused(ErrorCode.TOO_LARGE, f"The request is larger than {most:,} bytes (hooks.maxBodyBytes).")
    body = read_json(raw)
    if not isinstance(body, dict):
        raise Refused(ErrorCode.BAD_REQUEST, "The request must be a JSON object.")
    return body
