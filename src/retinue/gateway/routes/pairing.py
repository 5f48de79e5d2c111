"""A device gets a token of its own for a code that the owner made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import ConfigDict, StringConstraints

from retinue.gateway.app import make_route_group, needs
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.gateway.visitors import identify
from retinue.wire.frames import Credentials, Name, Params, Wire
from retinue.wire.protocol import Scope


class PairRequest(Params):
    """The code, and what the device is called in lists."""

    model_config = ConfigDict(defer_build=False)  # the framework looks into models before they are used

    code: Annotated[str, StringConstraints(min_length=4, max_length=40)]
    name: Name = "a device"


class Paired(Wire):
    """The device's token, shown once."""

    model_config = ConfigDict(defer_build=False)

    token: str
    token_id: str
    scopes: list[Scope]


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()

    @router.post("/pair", openapi_extra=needs(None), summary="Get a token for a pairing code.")
    async def pair(body: PairRequest, request: Request) -> Paired:
        visitor = identify(request.scope, gateway.gate.settings)
        admission = gateway.gate.admit(Credentials(pairing_code=body.code), visitor, body.name)
        assert admission.token is not None
        principal = admission.principal
        return Paired(token=admission.token, token_id=principal.token_id, scopes=sorted(principal.scopes))

    return router
