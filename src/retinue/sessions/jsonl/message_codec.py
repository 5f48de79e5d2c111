"""The JSON codec of messages, in OpenClaw's format: roles `user`, `assistant` and `toolResult`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from retinue.core.labels import Label
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

E = TypeVar("E", bound=StrEnum)

_STOP_NAMES = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "toolUse",
    StopReason.LENGTH: "length",
    StopReason.REFUSED: "refusal",
    StopReason.ABORTED: "aborted",
    StopReason.ERROR: "error",
}
_STOPS = {name: stop for stop, name in _STOP_NAMES.items()}


def encode_message(message: Message) -> dict[str, Any]:
    """Encode a message; empty keys are omitted."""
    match message:
        case UserMessage(content, sender, preface, label, exchange):
            data = {"role": "user", "content": [_encode_part(part) for part in content]}
            extra: dict[str, Any] = {"sender": sender, "preface": preface or None, "exchange": exchange or None}
            return data | _present(extra) | encode_label(label)
        case AssistantMessage():
            return _encode_answer(message)
        case ToolResult(call_id, tool, content, is_error, label):
            return {
                "role": "toolResult",
                "toolCallId": call_id,
                "toolName": tool,
                "content": [_encode_part(part) for part in content],
                "isError": is_error,
                **encode_label(label),
            }
    assert_never(message)


def decode_message(data: object) -> Message | None:
    """Decode a message; return None if a part is missing or of an unknown kind."""
    if not isinstance(data, dict):
        return None
    content = _decode_content(data.get("content"))
    if content is None:
        return None
    match data.get("role"):
        case "user":
            return _decode_user(data, content)
        case "assistant":
            return _decode_answer(data, content)
        case "toolResult":
            return _decode_result(data, content)
    return None


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def mapping_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_enum(kind: type[E], value: object) -> E | None:
    """Return the member with this value, or None."""
    try:
        return kind(value) if isinstance(value, str) else None
    except ValueError:
        return None


Part = Text | Image | Thinking | ToolCall


def _encode_part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(media_type, data):
            return {"type": "image", "data": data, "mimeType": media_type}
        case Thinking(text, signature, redacted):
            extra = {"thinkingSignature": signature, "redacted": redacted or None}
            return {"type": "thinking", "thinking": text} | _present(extra)
        case ToolCall(call_id, name, arguments, signature):
            call = {"type": "toolCall", "id": call_id, "name": name, "arguments": dict(arguments)}
            return call | _present({"thoughtSignature": signature})
    assert_never(part)


def _decode_content(value: object) -> tuple[Part, ...] | None:
    if isinstance(value, str):
        return (Text(value),)
    if not isinstance(value, list):
        return None
    parts = [_decode_part(item) for item in value]
    return None if None in parts else tuple(part for part in parts if part is not None)


def _decode_part(value: object) -> Part | None:
    data = mapping_of(value)
    match data:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "data": str(picture), "mimeType": str(media_type)}:
            return Image(media_type, picture)
        case {"type": "thinking", "thinking": str(text)}:
            return Thinking(text, text_or_none(data.get("thinkingSignature")), data.get("redacted") is True)
        case {"type": "toolCall", "id": str(call_id), "name": str(name), "arguments": dict(arguments)}:
            return ToolCall(call_id, name, arguments, text_or_none(data.get("thoughtSignature")))
    return None


def _encode_answer(message: AssistantMessage) -> dict[str, Any]:
    provider, slash, model = message.model.partition("/")
    if not (slash and provider and model):
        provider, model = "", message.model
    usage = message.usage
    data: dict[str, Any] = {
        "role": "assistant",
        "content": [_encode_part(part) for part in message.content],
        **_present({"provider": provider or None}),
        "model": model,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "totalTokens": usage.total,
            "cost": {"total": usage.cost},
        },
        "stopReason": _STOP_NAMES[message.stop],
    }
    return data | _present({"errorMessage": message.error})


def _decode_answer(data: Mapping[str, Any], content: tuple[Part, ...]) -> AssistantMessage:
    provider, model = text_or_none(data.get("provider")), text_or_none(data.get("model")) or ""
    return AssistantMessage(
        content=tuple(part for part in content if not isinstance(part, Image)),
        model=f"{provider}/{model}" if provider else model,
        usage=decode_usage(data.get("usage")),
        stop=_STOPS.get(str(data.get("stopReason")), StopReason.END),
        error=text_or_none(data.get("errorMessage")),
    )


def decode_usage(value: object) -> Usage:
    """Decode the usage in a transcript; an invalid number counts as 0."""
    data = mapping_of(value)
    cost = data.get("cost")
    return Usage(
        input=_count(data.get("input")),
        output=_count(data.get("output")),
        cache_read=_count(data.get("cacheRead")),
        cache_write=_count(data.get("cacheWrite")),
        cost=_amount(cost.get("total") if isinstance(cost, dict) else cost),
    )


def _decode_user(data: Mapping[str, Any], content: tuple[Part, ...]) -> UserMessage:
    exchange = data.get("exchange")
    return UserMessage(
        content=tuple(part for part in content if isinstance(part, Text | Image)),
        sender=text_or_none(data.get("sender")),
        preface=text_or_none(data.get("preface")) or "",
        label=decode_label(data, Label.OWNER),
        exchange=exchange if isinstance(exchange, int) else 0,
    )


def _decode_result(data: Mapping[str, Any], content: tuple[Part, ...]) -> ToolResult | None:
    call_id, tool = text_or_none(data.get("toolCallId")), text_or_none(data.get("toolName"))
    if call_id is None:
        return None
    return ToolResult(
        call_id=call_id,
        tool=tool or "",
        content=tuple(part for part in content if isinstance(part, Text | Image)),
        is_error=data.get("isError") is True,
        label=decode_label(data, Label.UNTRUSTED),
    )


def encode_label(label: Label) -> dict[str, Any]:
    """Return the fields of a label; earlier versions read the origin of another person as untrusted."""
    return {"trust": label.origin} | ({"private": True} if label.private else {})


def decode_label(data: Mapping[str, Any], unlabelled: Label) -> Label:
    """Decode a label; an invalid one must not make a text more trusted."""
    if "trust" not in data:
        return unlabelled
    return Label.parse(data["trust"], private=data.get("private") is True)


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0
