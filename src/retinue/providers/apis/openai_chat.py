"""The chat-completions format: converts requests to its JSON, and its chunks to a draft.

OpenAI's endpoint, compatible endpoints and the embedded model use it. The second part of the module, from `is_openai`
on, is shared with the responses format. It uses plain HTTP, as all adapters except one: see
`docs/decisions/0002-thin-adapters.md`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    StopReason,
    Text,
    ToolResult,
    Usage,
    UserMessage,
    memoize_per_message,
)
from retinue.core.model import CacheRetention, ModelRequest, ReasoningEffort, ToolSpec
from retinue.providers.apis.http_adapter import NO_TEXT, HttpAdapter, check_status, read_events, read_to_end, sampling
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import failure_from_response
from retinue.providers.settings import CompatSettings
from retinue.providers.stream import Delta, Draft, to_body, to_json, whole_number

if TYPE_CHECKING:
    from retinue.providers.http_client import EndpointClient, EndpointResponse

END = "[DONE]"
UNKNOWN_CONTENT_TYPES = ("", "text/plain")
"""Content types of compatible servers that stream without stating the real type."""
EFFORTS = {
    ReasoningEffort.MINIMAL: "minimal",
    ReasoningEffort.LOW: "low",
    ReasoningEffort.MEDIUM: "medium",
    ReasoningEffort.HIGH: "high",
    ReasoningEffort.XHIGH: "high",
}
_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSED,
}


def chat_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the whole conversation; a message has the same form in every request that contains it."""
    system = "\n\n".join(block for block in (request.stable, request.session) if block)
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    wired = _wire.of_all(request.messages)
    pictured = _pictures.of_all(request.messages)
    if not any(pictured):
        out.extend(chain.from_iterable(wired))
        return out
    pictures: list[dict[str, Any]] = []
    for message, form, found in zip(request.messages, wired, pictured, strict=True):
        if pictures and not isinstance(message, ToolResult):
            out.append({"role": "user", "content": pictures})
            pictures = []
        out.extend(form)
        pictures = [*pictures, *found]
    if pictures:
        out.append({"role": "user", "content": pictures})
    return out


@memoize_per_message
def _wire(message: Message) -> tuple[dict[str, Any], ...]:
    match message:
        case UserMessage():
            return ({"role": "user", "content": _user_content(message)},)
        case AssistantMessage():
            return tuple(_assistant(message))
        case ToolResult():
            text = message.text or NO_TEXT
            return ({"role": "tool", "tool_call_id": message.call_id, "content": text},)
        case _:
            assert_never(message)


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    lead = [message.preface] if message.preface else []
    if not any(isinstance(part, Image) for part in message.content):
        return "\n\n".join([*lead, message.text]) if message.text or lead else NO_TEXT
    parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in lead]
    for part in message.content:
        match part:
            case Text(text) if text:
                parts.append({"type": "text", "text": text})
            case Image():
                parts.append(_picture(part))
    return parts


def _assistant(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": to_json(call.arguments)}}
        for call in message.calls
    ]
    text = message.text
    if text or calls:
        yield {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})


def _picture(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}


@memoize_per_message
def _pictures(result: Message) -> list[dict[str, Any]]:
    """Return the images of a tool result as a user message: tool messages contain only text."""
    if not isinstance(result, ToolResult):
        return []
    found = [_picture(part) for part in result.content if isinstance(part, Image)]
    label = {"type": "text", "text": f"Images returned by {result.tool} ({result.call_id}):"}
    return [label, *found] if found else []


def chat_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def read_chunk(chunk: object, draft: Draft) -> Iterator[Delta]:
    """Add a chunk of a streamed answer, or a whole answer, to the draft; raise if it is an error or invalid."""
    if not isinstance(chunk, Mapping):
        raise TypeError("a chunk must be an object")
    if chunk.get("error"):
        raise failure_from_response(None, to_json(dict(chunk)))
    if usage := chunk.get("usage"):
        draft.usage = read_usage(usage)
    for choice in chunk.get("choices") or ():
        yield from _read_delta(choice.get("delta") or choice.get("message") or {}, draft)
        if reason := choice.get("finish_reason"):
            draft.stop = _STOPS.get(reason, StopReason.END)


def _read_delta(delta: Mapping[str, Any], draft: Draft) -> Iterator[Delta]:
    pieces: list[Delta | None] = []
    # Servers use two names for the reasoning; one that sends both repeats the same text.
    if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
        pieces.append(draft.add_reasoning(str(reasoning)))
    pieces += _read_content(delta.get("content") or delta.get("refusal"), draft)
    for position, call in enumerate(delta.get("tool_calls") or ()):
        function, index = call.get("function") or {}, call.get("index")
        arguments = function.get("arguments") or ""
        pieces.append(
            draft.add_call(
                position if index is None else index,
                call_id=str(call.get("id") or ""),
                name=str(function.get("name") or ""),
                # Some servers send the object itself instead of its text.
                arguments=arguments if isinstance(arguments, str) else to_json(arguments),
            )
        )
    yield from (piece for piece in pieces if piece is not None)


def _read_content(content: object, draft: Draft) -> Iterator[Delta | None]:
    """Read text, or a list of parts as Mistral's reasoning models send it, with nested lists for reasoning."""
    match content:
        case str():
            yield draft.add_text(content)
        case [*parts]:
            for part in parts:
                yield from _read_content(part, draft)
        case {"type": "thinking", "thinking": thought}:
            yield draft.add_reasoning(_join_text(thought))
        case {"text": str(text)}:
            yield draft.add_text(text)


def _join_text(thought: object) -> str:
    match thought:
        case [*parts]:
            return "".join(map(_join_text, parts))
        case {"text": str(text)} | str(text):
            return text
    return ""


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the token counts; the prompt's count includes cached tokens, ours does not."""
    prompt = whole_number(usage.get("prompt_tokens"))
    cached = whole_number((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    cached = min(cached or whole_number(usage.get("prompt_cache_hit_tokens")), prompt)
    return Usage(prompt - cached, whole_number(usage.get("completion_tokens")), cache_read=cached)


class OpenAIChat(HttpAdapter):
    """A provider that uses chat completions."""

    async def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        body = chat_body(request, self._endpoint)
        path = "/chat/completions"
        async with await post_stream(self._endpoint, credential, self._connect(), path, body) as response:
            async for chunk in read_pieces(response, credential):
                for piece in read_chunk(chunk, draft):
                    yield piece


def chat_body(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """Return the request as JSON; parts that vary within a session follow the constant parts, the messages are last."""
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


def is_openai(endpoint: Endpoint) -> bool:
    """Return whether the endpoint is OpenAI's own, which supports all documented features."""
    return urlsplit(endpoint.base_url).hostname == "api.openai.com"


def cache_fields(request: ModelRequest, compat: CompatSettings, *, own: bool) -> dict[str, str]:
    """Return the cache fields of a request; only OpenAI's `own` endpoint supports 24-hour retention."""
    accepted = own if compat.prompt_cache_key is None else compat.prompt_cache_key
    if not request.cache_key or not accepted or request.cache is CacheRetention.NONE:
        return {}
    fields = {"prompt_cache_key": request.cache_key}
    return fields | ({"prompt_cache_retention": "24h"} if own and request.cache is CacheRetention.LONG else {})


def post_stream(
    endpoint: Endpoint, credential: Credential | None, client: EndpointClient, path: str, body: dict[str, Any]
) -> Coroutine[None, None, EndpointResponse]:
    """Send a request; `read_pieces` reads its response."""
    headers = {"content-type": "application/json"}
    if credential is not None:
        headers["authorization"] = f"Bearer {credential.secret}"
    wait = endpoint.timeouts.idle if body["stream"] else endpoint.timeouts.total
    return client.post(f"{endpoint.base_url}{path}", to_body(body), headers, wait)


async def read_pieces(response: EndpointResponse, credential: Credential | None) -> AsyncGenerator[object, None]:
    """Yield the chunks of a response. A response that is not streamed is one chunk."""
    await check_status(response, credential)
    secret = credential.secret if credential else None
    if response.media_type == "application/json":
        yield _read(await response.read(), secret)
        return
    events = read_events(response, UNKNOWN_CONTENT_TYPES)
    async for data in events:
        if data.startswith(END):
            await read_to_end(events)
        elif data:
            yield _read(data, secret)


def _read(data: str, secret: str | None) -> object:
    """Parse one chunk; raise if it is an error, which can also arrive with status 200."""
    found = json.loads(data)
    if isinstance(found, Mapping) and found.get("error"):
        raise failure_from_response(None, to_json({"error": found["error"]}), secret=secret)
    return found
