"""OpenAI's chat completions, and every endpoint that is compatible with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from retinue.core.model import ModelRequest, ReasoningEffort
from retinue.providers.adapter import HttpAdapter, sampling
from retinue.providers.base import Credential, Endpoint
from retinue.providers.chatformat import chat_messages, chat_tools, read_chunk
from retinue.providers.openai_http import EFFORTS, cache_fields, is_openai, open_stream
from retinue.providers.stream import Delta, Draft


class OpenAIChat(HttpAdapter):
    """A provider that speaks chat completions."""

    async def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        body = chat_body(request, self._endpoint)
        async with open_stream(self._endpoint, credential, self._connect(), "/chat/completions", body) as chunks:
            async for chunk in chunks:
                for piece in read_chunk(chunk, draft):
                    yield piece


def chat_body(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """The request as JSON; what varies within a session stands behind what does not, and the messages last."""
    own = is_openai(endpoint)
    compat = endpoint.compat_of(request.model.model)
    reasoning = endpoint.describe(request.model).reasoning
    body: dict[str, Any] = {"model": request.model.model, "stream": request.streamed}
    if request.streamed and compat.supports_usage_in_streaming is not False:
        body["stream_options"] = {"include_usage": True}
    if request.max_output:
        body[compat.max_tokens_field or ("max_completion_tokens" if own else "max_tokens")] = request.max_output
    if not (own and reasoning):
        body |= sampling(request)
    takes_effort = reasoning if compat.supports_reasoning_effort is None else compat.supports_reasoning_effort
    if request.thinking is not ReasoningEffort.OFF and takes_effort:
        body["reasoning_effort"] = EFFORTS[request.thinking]
    body |= cache_fields(request, compat, own=own)
    if request.tools:
        body["tools"] = chat_tools(request.tools)
    return body | {"messages": chat_messages(request)}


def make_provider(endpoint: Endpoint) -> OpenAIChat:
    return OpenAIChat(endpoint)
