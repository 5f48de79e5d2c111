"""Anthropic's messages API over plain HTTP.

Importing the official SDK costs a second of processor time and 73 MB, for one request and six kinds of event; see
`docs/decisions/0002-thin-adapters.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, assert_never

from retinue.core.messages import (
    AssistantMessage,
    Image,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from retinue.core.model import CacheRetention, ModelRequest, ReasoningEffort
from retinue.providers.apis.http_adapter import NO_TEXT, HttpAdapter, check_status, read_events, read_to_end, sampling
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import failure_from_response
from retinue.providers.stream import Delta, Draft, to_body, to_json, whole_number

API_VERSION = "2023-06-01"
BEARER_BETA = "oauth-2025-04-20"

_BUDGETS = {
    ReasoningEffort.MINIMAL: 1_024,
    ReasoningEffort.LOW: 2_048,
    ReasoningEffort.MEDIUM: 8_192,
    ReasoningEffort.HIGH: 16_384,
    ReasoningEffort.XHIGH: 32_768,
}
_EFFORTS = {
    ReasoningEffort.MINIMAL: "low",
    ReasoningEffort.LOW: "low",
    ReasoningEffort.MEDIUM: "medium",
    ReasoningEffort.HIGH: "high",
    ReasoningEffort.XHIGH: "xhigh",
}
_STOPS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "pause_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.REFUSED,
}
_MARKERS: Mapping[CacheRetention, dict[str, Any]] = {
    CacheRetention.NONE: {},
    CacheRetention.SHORT: {"cache_control": {"type": "ephemeral"}},
    CacheRetention.LONG: {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
}
_VERSION = re.compile(r"-(\d{1,2})(?:-(\d{1,2}))?(?=-|$)")
_ODD_ID = re.compile(r"[^A-Za-z0-9_-]")


class Anthropic(HttpAdapter):
    """A provider that uses the messages API."""

    async def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        body = to_body(messages_body(request, self._endpoint))
        headers = {"content-type": "application/json", "anthropic-version": API_VERSION, **_auth_headers(credential)}
        url = f"{self._endpoint.base_url}/v1/messages"
        async with await self._connect().post(url, body, headers) as response:
            await check_status(response, credential)
            events = read_events(response)
            async for text in events:
                if not text:
                    continue
                data = json.loads(text)
                if (piece := read_event(data, draft)) is not None:
                    yield piece
                if draft.stop is not None and data.get("type") == "message_stop":
                    await read_to_end(events)
                    return
        # A stream that ended before `message_stop` is incomplete, even if a stop reason had arrived.
        draft.stop = None


def _auth_headers(credential: Credential | None) -> dict[str, str]:
    if credential is None:
        return {}
    if credential.kind == "token":
        return {"authorization": f"Bearer {credential.secret}", "anthropic-beta": BEARER_BETA}
    return {"x-api-key": credential.secret}


def messages_body(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """Return the request as JSON: constant parts first, the conversation last.

    Cache markers are on the last tool, the stable system block and the last user message. Only they move between two
    requests of a session; the provider does not count them as content.
    """
    info = endpoint.describe(request.model)
    marker = _MARKERS[request.cache]
    body: dict[str, Any] = {"model": request.model.model, "stream": True}
    thinking = _thinking(request) if info.reasoning else {}
    budget = thinking.get("thinking", {}).get("budget_tokens", 0)
    # The budget counts towards the limit, so a small limit is raised by it as far as the model allows.
    body["max_tokens"] = min((request.max_output or info.max_output) + budget, max(info.max_output, budget + 1))
    body |= thinking
    if not thinking and not _is_adaptive(request.model.model):
        body |= sampling(request)
    if request.tools:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
        body["tools"] = [*tools[:-1], tools[-1] | marker]
    system = [{"type": "text", "text": request.stable, **marker}] if request.stable else []
    if request.session:
        system.append({"type": "text", "text": request.session})
    if system:
        body["system"] = system
    return body | {"messages": _mark_last(list(_conversation(request)), marker)}


def _thinking(request: ModelRequest) -> dict[str, Any]:
    if request.thinking is ReasoningEffort.OFF:
        return {}
    if _is_adaptive(request.model.model):
        adaptive = {"type": "adaptive", "display": "summarized"}
        return {"thinking": adaptive, "output_config": {"effort": _EFFORTS[request.thinking]}}
    return {"thinking": {"type": "enabled", "budget_tokens": _BUDGETS[request.thinking]}}


def _is_adaptive(model: str) -> bool:
    """Return whether the model sets its own thinking budget: from version 4.6 on, and it refuses sampling settings."""
    found = _VERSION.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= (4, 6)


def _conversation(request: ModelRequest) -> Iterator[dict[str, Any]]:
    """Yield the messages; results of parallel calls are one user message, as the API requires."""
    results: list[dict[str, Any]] = []
    for message in request.messages:
        if isinstance(message, ToolResult):
            results.append(_result(message))
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        yield from _wire(message, request.model.provider)
    if results:
        yield {"role": "user", "content": results}


def _wire(message: UserMessage | AssistantMessage, provider: str) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            lead: list[dict[str, Any]] = [{"type": "text", "text": message.preface}] if message.preface else []
            blocks = [*lead, *_blocks(message.content)]
            yield {"role": "user", "content": blocks or [{"type": "text", "text": NO_TEXT}]}
        case AssistantMessage():
            own = message.model.startswith(f"{provider}/")
            blocks = [block for part in message.content if (block := _answer_block(part, own=own)) is not None]
            if blocks:
                yield {"role": "assistant", "content": blocks}
        case _:
            assert_never(message)


def _blocks(content: tuple[Text | Image, ...]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Text(text) if text.strip():
                blocks.append({"type": "text", "text": text})
            case Image(media_type, data):
                source = {"type": "base64", "media_type": media_type, "data": data}
                blocks.append({"type": "image", "source": source})
    return blocks


def _result(result: ToolResult) -> dict[str, Any]:
    content = _blocks(result.content) or [{"type": "text", "text": NO_TEXT}]
    block = {"type": "tool_result", "tool_use_id": _plain_id(result.call_id), "content": content}
    return block | ({"is_error": True} if result.is_error else {})


def _answer_block(part: Text | Thinking | ToolCall, *, own: bool) -> dict[str, Any] | None:
    """Return one block of an answer. Reasoning is sent back only to the provider that signed it."""
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Thinking(text, signature, redacted):
            if not own or not signature:
                return None
            if redacted:
                return {"type": "redacted_thinking", "data": signature}
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ToolCall():
            return {"type": "tool_use", "id": _plain_id(part.id), "name": part.name, "input": dict(part.arguments)}
        case _:
            assert_never(part)


def _plain_id(call_id: str) -> str:
    """Return a call id with the characters that the API allows; ids of other providers may contain others."""
    return _ODD_ID.sub("_", call_id)


def _mark_last(messages: list[dict[str, Any]], marker: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Set the cache marker on the last user message."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message["role"] == "user":
            *before, last = message["content"]
            marked = message | {"content": [*before, {**last, **marker}]}
            return [*messages[:position], marked, *messages[position + 1 :]]
    return messages


def read_event(event: Mapping[str, Any], draft: Draft) -> Delta | None:
    """Add one event of a streamed answer to the draft."""
    match event.get("type"):
        case "message_start":
            draft.usage = _usage(event["message"].get("usage") or {}, Usage())
        case "content_block_start":
            return _open_block(event["content_block"], event.get("index"), draft)
        case "content_block_delta":
            return _extend_block(event["delta"], event.get("index"), draft)
        case "message_delta":
            draft.usage = _usage(event.get("usage") or {}, draft.usage)
            if reason := event["delta"].get("stop_reason"):
                draft.stop = _STOPS.get(reason, StopReason.END)
        case "error":
            raise failure_from_response(None, to_json({"error": event.get("error")}))
    return None


def _open_block(block: Mapping[str, Any], key: object, draft: Draft) -> Delta | None:
    match block.get("type"):
        case "text":
            return draft.add_text(str(block.get("text") or ""), key)
        case "thinking":
            return draft.add_reasoning(str(block.get("thinking") or ""), key)
        case "redacted_thinking":
            draft.add_redacted(str(block.get("data") or ""))
        case "tool_use":
            # The arguments follow in pieces, but some servers send them all at once.
            whole = to_json(block["input"]) if block.get("input") else ""
            return draft.add_call(
                key, call_id=str(block.get("id") or ""), name=str(block.get("name") or ""), arguments=whole
            )
    return None


def _extend_block(delta: Mapping[str, Any], key: object, draft: Draft) -> Delta | None:
    match delta.get("type"):
        case "text_delta":
            return draft.add_text(str(delta.get("text") or ""), key)
        case "thinking_delta":
            return draft.add_reasoning(str(delta.get("thinking") or ""), key)
        case "signature_delta":
            draft.add_signature(str(delta.get("signature") or ""), key)
        case "input_json_delta":
            return draft.add_call(key, arguments=str(delta.get("partial_json") or ""))
    return None


def _usage(usage: Mapping[str, Any], before: Usage) -> Usage:
    """Return the token counts; the closing event repeats some of the opening one and has the correct output count."""
    return Usage(
        whole_number(usage.get("input_tokens")) or before.input,
        whole_number(usage.get("output_tokens")) or before.output,
        whole_number(usage.get("cache_read_input_tokens")) or before.cache_read,
        whole_number(usage.get("cache_creation_input_tokens")) or before.cache_write,
    )


def make_provider(endpoint: Endpoint) -> Anthropic:
    return Anthropic(endpoint)
