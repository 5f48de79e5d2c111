"""Webhooks: other programs wake an agent or give it something to do, with a token of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict

from retinue.automation.webhooks import HookRefused, read_hook
from retinue.core.clock import random_id
from retinue.gateway.app import make_route_group, needs
from retinue.gateway.gate import Refused, bearer_token
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.runtime.webhooks import HookDesk, hook_rules
from retinue.wire.frames import Wire
from retinue.wire.protocol import ErrorCode

HEADER = "x-retinue-token"
_CODES = {403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND}


class HookAccepted(Wire):
    """The request is kept for good; the answer comes later."""

    model_config = ConfigDict(defer_build=False)

    run_id: str


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()

    @router.post("/hooks/{name:path}", openapi_extra=needs(None), summary="Give an agent something to do.")
    async def hook(name: str, request: Request) -> HookAccepted:
        settings = gateway.runtime.foundation.config.hooks
        if not settings.enabled:
            raise Refused(ErrorCode.NOT_FOUND, "Webhooks are not served (hooks.enabled).")
        given = bearer_token(request.headers.getlist("authorization")) or request.headers.get(HEADER)
        address = request.client.host if request.client else ""
        gateway.gate.check_secret(given, settings.token, address)
        body = _read(await request.body(), settings.max_body_bytes)
        try:
            task = read_hook(name, body, hook_rules(settings), random_id)
        except HookRefused as refusal:
            raise Refused(_CODES.get(refusal.status, ErrorCode.BAD_REQUEST), str(refusal)) from refusal
        desk = HookDesk(gateway.runtime, gateway.switchboard, gateway.spawner.tasks)
        return HookAccepted(run_id=await desk.take(task))

    return router


def _read(raw: bytes, most: int) -> Mapping[str, Any]:
    if len(raw) > most:
        raise Refused(ErrorCode.TOO_LARGE, f"The request is larger than {most:,} bytes (hooks.maxBodyBytes).")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(ErrorCode.BAD_REQUEST, "The request must be a JSON object.")
    return body
