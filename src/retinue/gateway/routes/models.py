"""`GET /v1/models`: agents as models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from retinue.gateway.app import needs
from retinue.gateway.compat.errors import json_response, make_compat_group
from retinue.gateway.compat.names import PRODUCT, find_agent, model_names
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.wire.protocol import Scope


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_compat_group()

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": int(gateway.started_at.timestamp()), "owned_by": PRODUCT}

    @router.get("/v1/models", openapi_extra=needs(Scope.READ), summary="Every agent, as a model.", tags=["openai"])
    async def list_models() -> Response:
        names = model_names(gateway.runtime.home.config)
        return json_response({"object": "list", "data": list(map(describe, names))})

    @router.get(
        "/v1/models/{model:path}", openapi_extra=needs(Scope.READ), summary="One agent, as a model.", tags=["openai"]
    )
    async def show_model(model: str) -> Response:
        find_agent(gateway.runtime.home.config, model)
        return json_response(describe(model))

    return router
