"""Converting OpenClaw messages, of old and new formats, to the format of our transcripts.

All functions convert JSON to JSON; `message_codec` decodes the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from retinue.core.messages import INVALID_ARGUMENTS
from retinue.core.trust import Trust
from retinue.sessions.jsonl.message_codec import mapping_of, text_or_none

Shape = dict[str, Any]

_RESULT_ROLES = frozenset({"toolresult", "tool_result", "tool"})
_CALL_TYPES = frozenset({"toolCall", "tool_call", "tool_use", "toolUse", "functionCall"})
_RESULT_TYPES = frozenset({"tool_result", "toolResult"})
_STOPS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "toolUse", "tool_calls": "toolUse"}
_STOPS |= {"max_tokens": "length", "content_filter": "refusal"}
_USAGE_NAMES = {
    "input": ("input", "inputTokens", "input_tokens", "prompt_tokens"),
    "output": ("output", "outputTokens", "output_tokens", "completion_tokens"),
    "cacheRead": ("cacheRead", "cacheReadTokens", "cache_read_input_tokens"),
    "cacheWrite": ("cacheWrite", "cacheWriteTokens", "cache_creation_input_tokens"),
}


def convert_message(message: Mapping[str, Any], *, shared: bool) -> list[Shape] | None:
    """Return the messages for an OpenClaw message, or None if its kind is unknown.

    Trust labels of the file are ignored, because the file itself is untrusted. In a shared chat it is unknown which
    messages are the owner's.
    """
    role = str(message.get("role"))
    parts = _parts_of(message.get("content"))
    match role:
        case "user":
            return _spell_user(message, parts, Trust.UNTRUSTED if shared else Trust.OWNER)
        case "assistant":
            return [_spell_answer(message, parts)]
        case "custom" | "hookMessage":
            return _spell_user(message, parts, Trust.UNTRUSTED)
        case "bashExecution":
            text = f"[Ran `{message.get('command')}`]\n{message.get('output') or ''}"
            return [context_message(text)]
        case "branchSummary" | "compactionSummary":
            return [context_message(str(message.get("summary") or ""))]
    return [_spell_result(message, parts)] if role.lower() in _RESULT_ROLES else None


def context_message(content: object) -> Shape:
    """Return a message that no person wrote."""
    spoken = [shape for part in _parts_of(content) if (shape := _spell_spoken(part))]
    return {"role": "user", "content": spoken, "trust": Trust.UNTRUSTED.value}


def _spell_user(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], trust: Trust) -> list[Shape]:
    """Return a user message and its tool results, which old transcripts store as parts of the user message."""
    results = [_spell_result(part, _parts_of(part.get("content"))) for part in parts if _type(part) in _RESULT_TYPES]
    spoken = [shape for part in parts if _type(part) not in _RESULT_TYPES and (shape := _spell_spoken(part))]
    if trust is Trust.OWNER and _kind_of_sender(message) not in (None, "external_user"):
        trust = Trust.AGENT
    if not spoken and results:
        return results
    user: Shape = {"role": "user", "content": spoken, "trust": trust.value}
    sender = next((name for key in ("sender", "senderName") if (name := text_or_none(message.get(key)))), None)
    extra = {"sender": sender, "preface": text_or_none(message.get("preface"))}
    return [*results, user | {name: value for name, value in extra.items() if value}]


def _kind_of_sender(message: Mapping[str, Any]) -> str | None:
    return text_or_none(mapping_of(message.get("provenance")).get("kind"))


def _spell_answer(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Shape:
    stop = text_or_none(message.get("stopReason")) or text_or_none(message.get("stop_reason")) or "stop"
    kept = ("provider", "model", "errorMessage")
    return {
        "role": "assistant",
        "content": [shape for part in parts if (shape := _spell_part(part))],
        "usage": convert_usage(message.get("usage")),
        "stopReason": _STOPS.get(stop, stop),
        **{name: message[name] for name in kept if isinstance(message.get(name), str)},
    }


def _spell_result(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Shape:
    names = ("toolCallId", "tool_call_id", "toolUseId", "tool_use_id")
    call = next((value for name in names if (value := text_or_none(message.get(name)))), "")
    failed = any(message.get(name) is True for name in ("isError", "is_error"))
    return {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": text_or_none(message.get("toolName")) or text_or_none(message.get("name")) or "",
        "content": [shape for part in parts if (shape := _spell_spoken(part))],
        "isError": failed,
        "trust": Trust.UNTRUSTED.value,
    }


def convert_usage(value: object) -> Shape:
    """Return the usage of an answer under the current names."""
    data = mapping_of(value)
    counts = {ours: next((data[n] for n in names if n in data), 0) for ours, names in _USAGE_NAMES.items()}
    return counts | {"cost": data.get("cost", 0)}


def _parts_of(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [{"type": "text", "text": part} if isinstance(part, str) else mapping_of(part) for part in content]


def _type(part: Mapping[str, Any]) -> str:
    return str(part.get("type"))


def _spell_part(part: Mapping[str, Any]) -> Shape | None:
    """Return a part of an answer; a part of an unknown kind becomes its name in brackets."""
    kind = _type(part)
    if kind in _CALL_TYPES:
        call = {"type": "toolCall", "id": str(part.get("id") or ""), "name": str(part.get("name") or "")}
        arguments: object = next((part[name] for name in ("arguments", "input", "args") if name in part), {})
        signature = text_or_none(part.get("thoughtSignature"))
        return call | {"arguments": _spell_arguments(arguments)} | _if_any("thoughtSignature", signature)
    if kind == "thinking":
        text = text_or_none(part.get("thinking")) or text_or_none(part.get("text")) or ""
        signature = text_or_none(part.get("thinkingSignature")) or text_or_none(part.get("signature"))
        hidden = {"redacted": True} if part.get("redacted") is True else {}
        return {"type": "thinking", "thinking": text} | _if_any("thinkingSignature", signature) | hidden
    if kind == "redacted_thinking":
        return {"type": "thinking", "thinking": "", "redacted": True} | _if_any("thinkingSignature", part.get("data"))
    return _spell_spoken(part)


def _spell_spoken(part: Mapping[str, Any]) -> Shape | None:
    """Return a text or image part."""
    kind = _type(part)
    text = text_or_none(part.get("text"))
    if kind in ("text", "input_text", "output_text") and text is not None:
        return {"type": "text", "text": text}
    if kind in ("image", "image_url"):
        picture = _spell_picture(part)
        if picture is not None:
            return picture
    return {"type": "text", "text": f"[{kind}]"} if part else None


def _spell_picture(part: Mapping[str, Any]) -> Shape | None:
    source = mapping_of(part.get("source"))
    address = part.get("image_url") or part.get("url")
    address = mapping_of(address).get("url") if isinstance(address, dict) else address
    match part.get("data") or source.get("data"), part.get("mimeType") or source.get("media_type"):
        case str(data), str(media_type):
            return {"type": "image", "data": data, "mimeType": media_type}
    if isinstance(address, str) and address.startswith("data:") and ";base64," in address:
        media_type, _, data = address.removeprefix("data:").partition(";base64,")
        return {"type": "image", "data": data, "mimeType": media_type}
    return None


def _spell_arguments(value: object) -> Shape:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {INVALID_ARGUMENTS: value}
    return dict(value) if isinstance(value, dict) else {INVALID_ARGUMENTS: json.dumps(value)}


def _if_any(name: str, value: object) -> Shape:
    return {name: value} if isinstance(value, str) and value else {}
