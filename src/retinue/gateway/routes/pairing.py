"""`POST /pair`: a token for a device that has a pairing code."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request

from retinue.gateway.auth.client_address import find_source
from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.gateway import Gateway
from retinue.wire.frames import Credentials, Name, Params, Wire
from retinue.wire.protocol import Scope


class PairRequest(Params, frozen=True):
    """The pairing code, and the name of the device in lists."""

    code: Annotated[str, Meta(min_length=4, max_length=40)]
    name: Name = "a device"


class Paired(Wire, frozen=True):
    """The device's token; it is sent once."""

    token: str
    token_id: str
    scopes: list[Scope]


async def pair(gateway: Gateway, request: Request, body: PairRequest) -> Paired:
    source = find_source(request.scope, gateway.auth.settings)
    admission = gateway.auth.admit(Credentials(pairing_code=body.code), source, body.name)
    assert admission.token is not None
    principal = admission.principal
    return Paired(admission.token, principal.token_id, sorted(principal.scopes))


ENDPOINTS = (
    RouteEndpoint(
        verb="POST",
        path="/pair",
        scope=None,
        act=pair,
        body=PairRequest,
        result=Paired,
        summary="Get a token for a pairing code.",
    ),
)
