"""`POST /v1/chat/completions`: an agent's turn as a chat completion."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from retinue.gateway.app import needs
from retinue.gateway.compat.asking import Wish, ask, dialogue_for, reply_headers
from retinue.gateway.compat.chat import Completion, read_messages, read_tools, refuse_unsupported
from retinue.gateway.compat.errors import json_response, make_compat_group, refuse_switched_off
from retinue.gateway.compat.hearing import EventStream
from retinue.gateway.compat.shapes import ChatRequest
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.wire.protocol import Scope


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_compat_group()

    @router.post(
        "/v1/chat/completions",
        openapi_extra=needs(Scope.WRITE),
        summary="An answer of an agent, as OpenAI's chat completions.",
        tags=["openai"],
    )
    async def complete(body: ChatRequest, request: Request) -> Response:
        settings = gateway.runtime.home.config.gateway.http.endpoints.chat_completions
        refuse_switched_off(settings, "chatCompletions")
        refuse_unsupported(body)
        dialogue = dialogue_for(gateway, "messages")
        read_messages(body.messages, dialogue)
        wish = Wish(body.model, body.user, tools=read_tools(body))
        hearing = await ask(gateway, request, wish, dialogue)
        created = int(gateway.runtime.home.clock.now().timestamp())
        completion = Completion(hearing.run, created, body.model)
        headers = reply_headers(hearing)
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return EventStream(hearing, completion.stream(hearing, with_usage=with_usage), headers)
        try:
            heard = await hearing.answer(request)
        finally:
            hearing.leave()
        return json_response(completion.write(heard), headers=headers) if heard else Response(status_code=499)

    return router
