"""OpenAI's responses API. Nothing is stored at OpenAI: every request contains the whole conversation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, assert_never

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from retinue.core.model import ModelRequest, ReasoningEffort
from retinue.providers.apis.http_adapter import NO_TEXT, HttpAdapter, sampling
from retinue.providers.apis.openai_chat import EFFORTS, cache_fields, is_openai, post_stream, read_pieces
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import failure_from_response
from retinue.providers.stream import Delta, Draft, to_json, whole_number


class OpenAIResponses(HttpAdapter):
    """A provider that uses the responses API."""

    async def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        body = responses_body(request, self._endpoint)
        async with await post_stream(self._endpoint, credential, self._connect(), "/responses", body) as response:
            async for event in read_pieces(response, credential):
                if (piece := read_event(event, draft)) is not None:
                    yield piece


def responses_body(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    """Return the request as JSON, with the conversation last."""
    own = is_openai(endpoint)
    compat = endpoint.compat_of(request.model.model)
    reasoning = endpoint.describe(request.model).reasoning
    body: dict[str, Any] = {"model": request.model.model, "stream": True, "store": False}
    if request.max_output:
        body["max_output_tokens"] = request.max_output
    if reasoning:
        body["include"] = ["reasoning.encrypted_content"]
        if request.thinking is not ReasoningEffort.OFF:
            body["reasoning"] = {"effort": EFFORTS[request.thinking], "summary": "auto"}
    else:
        body |= sampling(request)
    body |= cache_fields(request, compat, own=own)
    system = "\n\n".join(block for block in (request.stable, request.session) if block)
    if system:
        body["instructions"] = system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
    items = [item for message in request.messages for item in _items(message, request.model.provider)]
    return body | {"input": items}


def _items(message: Message, provider: str) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            lead: list[dict[str, Any]] = [{"type": "input_text", "text": message.preface}] if message.preface else []
            parts = [*lead, *_inputs(message.content)]
            yield {"type": "message", "role": "user", "content": parts or [{"type": "input_text", "text": NO_TEXT}]}
        case AssistantMessage():
            own = message.model.startswith(f"{provider}/")
            for part in message.content:
                if (item := _answer_item(part, own=own)) is not None:
                    yield item
        case ToolResult():
            has_picture = any(isinstance(part, Image) for part in message.content)
            output = _inputs(message.content) if has_picture else message.text or NO_TEXT
            yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
        case _:
            assert_never(message)


def _inputs(content: tuple[Text | Image, ...]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Text(text) if text:
                parts.append({"type": "input_text", "text": text})
            case Image(media_type, data):
                parts.append({"type": "input_image", "image_url": f"data:{media_type};base64,{data}"})
    return parts


def _answer_item(part: Text | Thinking | ToolCall, *, own: bool) -> dict[str, Any] | None:
    match part:
        case Text(text):
            content = [{"type": "output_text", "text": text}]
            return {"type": "message", "role": "assistant", "content": content} if text else None
        case Thinking(text, signature):
            if not own or not signature:
                return None
            summary = [{"type": "summary_text", "text": text}] if text else []
            return {"type": "reasoning", **_unpack(signature), "summary": summary}
        case ToolCall():
            arguments = to_json(part.arguments)
            return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}
        case _:
            assert_never(part)


def _pack(item: Mapping[str, Any]) -> str:
    """Return the fields of a reasoning item that OpenAI requires back, as one signature."""
    return to_json({"id": item.get("id"), "encrypted_content": item.get("encrypted_content")})


def _unpack(signature: str) -> dict[str, Any]:
    try:
        found = json.loads(signature)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_event(event: object, draft: Draft) -> Delta | None:
    """Add one event of a streamed answer to the draft."""
    if not isinstance(event, Mapping):
        raise TypeError("an event must be an object")
    match event.get("type"):
        case "response.output_text.delta" | "response.refusal.delta":
            return draft.add_text(str(event.get("delta") or ""), event.get("output_index"))
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            return draft.add_reasoning(str(event.get("delta") or ""), event.get("output_index"))
        case "response.output_item.added":
            return _open_item(event, draft)
        case "response.function_call_arguments.delta":
            return draft.add_call(event.get("output_index"), arguments=str(event.get("delta") or ""))
        case "response.output_item.done":
            return _close_item(event, draft)
        case "response.completed" | "response.incomplete":
            _finish(event["response"], draft)
        case "response.failed":
            error = event["response"].get("error")
            raise failure_from_response(None, to_json({"error": error}) if error else "")
        case "error":
            raise failure_from_response(
                None, to_json({"error": {"message": event.get("message"), "code": event.get("code")}})
            )
    return None


def _open_item(event: Mapping[str, Any], draft: Draft) -> Delta | None:
    item = event["item"]
    if item.get("type") != "function_call":
        return None
    key = event.get("output_index")
    return draft.add_call(key, call_id=str(item.get("call_id") or ""), name=str(item.get("name") or ""))


def _close_item(event: Mapping[str, Any], draft: Draft) -> Delta | None:
    item, key = event["item"], event.get("output_index")
    if item.get("type") == "reasoning" and item.get("encrypted_content"):
        draft.add_signature(_pack(item), key)
    if item.get("type") == "function_call" and not draft.has_arguments(key):
        # Compatible servers may omit the deltas and send only the complete item.
        return draft.add_call(key, arguments=str(item.get("arguments") or ""))
    return None


def _finish(response: Mapping[str, Any], draft: Draft) -> None:
    why = str((response.get("incomplete_details") or {}).get("reason"))
    draft.stop = {"max_output_tokens": StopReason.LENGTH, "content_filter": StopReason.REFUSED}.get(why, StopReason.END)
    usage = response.get("usage") or {}
    prompt = whole_number(usage.get("input_tokens"))
    cached = min(whole_number((usage.get("input_tokens_details") or {}).get("cached_tokens")), prompt)
    draft.usage = Usage(prompt - cached, whole_number(usage.get("output_tokens")), cache_read=cached)


def make_provider(endpoint: Endpoint) -> OpenAIResponses:
    return OpenAIResponses(endpoint)
