"""`POST /v1/responses`: an agent's turn as a response; `previous_response_id` goes on in its session."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from retinue.gateway.app import needs
from retinue.gateway.compat.asking import Wish, ask, dialogue_for, reply_headers
from retinue.gateway.compat.errors import json_response, make_compat_group, refuse_switched_off
from retinue.gateway.compat.hearing import EventStream
from retinue.gateway.compat.responses import (
    ResponseWriter,
    read_input,
    read_previous,
    read_tools,
    refuse_unsupported,
)
from retinue.gateway.compat.shapes import ResponseRequest
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.wire.protocol import Scope


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_compat_group()

    @router.post(
        "/v1/responses",
        openapi_extra=needs(Scope.WRITE),
        summary="An answer of an agent, as OpenAI's responses.",
        tags=["openai"],
    )
    async def respond(body: ResponseRequest, request: Request) -> Response:
        refuse_switched_off(gateway.runtime.home.config.gateway.http.endpoints.responses, "responses")
        refuse_unsupported(body)
        dialogue = dialogue_for(gateway, "input")
        read_input(body, dialogue)
        wish = Wish(body.model, body.user, read_previous(body.previous_response_id), read_tools(body))
        hearing = await ask(gateway, request, wish, dialogue)
        writer = ResponseWriter(hearing.run, int(gateway.runtime.home.clock.now().timestamp()), body)
        headers = reply_headers(hearing)
        if body.stream:
            return EventStream(hearing, writer.stream(hearing), headers)
        try:
            heard = await hearing.answer(request)
        finally:
            hearing.leave()
        return json_response(writer.write(heard), headers=headers) if heard else Response(status_code=499)

    return router
