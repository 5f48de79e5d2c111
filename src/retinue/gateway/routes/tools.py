"""`POST /tools/invoke`: one tool call of a program's, under the policy of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import ConfigDict, Field, StringConstraints

from retinue.gateway.app import needs, principal_of
from retinue.gateway.compat.errors import json_response, make_compat_group
from retinue.gateway.gateway import Call, Gateway
from retinue.gateway.invocation import Wanted, invoke
from retinue.gateway.registry import Entry
from retinue.wire.agent import SessionName
from retinue.wire.frames import Name, Params
from retinue.wire.protocol import Scope


class InvokeRequest(Params):
    """Which tool to call, with what, in which session; `dryRun` only tells whether it may be."""

    model_config = ConfigDict(defer_build=False)

    tool: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    args: dict[str, Any] = Field(default_factory=dict)
    session_key: SessionName | None = None
    agent: Name | None = None
    dry_run: bool = False


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_compat_group()

    @router.post(
        "/tools/invoke", openapi_extra=needs(Scope.WRITE), summary="Call one tool of an agent's.", tags=["tools"]
    )
    async def invoke_tool(body: InvokeRequest, request: Request) -> Response:
        call = Call(gateway, principal_of(request))
        session = call.session(body.session_key, body.agent)
        wanted = Wanted(body.tool, body.args, session, dry_run=body.dry_run)
        return json_response(await invoke(call, wanted))

    return router
