"""Messages as they enter and leave, as JSON that another process or a later start can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from retinue.core.envelope import CallSummary, Inbound, Outbound, Source
from retinue.core.errors import UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Image, ToolCall, ToolResult, Usage
from retinue.core.model import ReasoningEffort, ToolSpec
from retinue.core.origin import Origin, PeerKind
from retinue.sessions.message_codec import (
    decode_message,
    decode_usage,
    encode_message,
    mapping_of,
    parse_enum,
    text_or_none,
)


def encode_inbound(inbound: Inbound) -> str:
    return _dump(
        {
            "text": inbound.text,
            **_encode_key(inbound.session),
            "images": [{"mimeType": image.media_type, "data": image.data} for image in inbound.images],
            "sender": inbound.sender,
            "owner": inbound.owner,
            "channel": inbound.channel,
            "source": inbound.source.value,
            "model": inbound.model,
            **({"origin": encode_origin(inbound.origin)} if inbound.origin else {}),
            **_encode_program(inbound),
        }
    )


def decode_inbound(text: str) -> Inbound:
    """The message in `text`; raises `ValueError` where it cannot be read. What is not said to be the owner's is not."""
    data = _load(text)
    return Inbound(
        text=_text(data, "text"),
        session=_decode_key(data),
        images=tuple(
            Image(_text(image, "mimeType"), _text(image, "data")) for image in map(mapping_of, _items(data, "images"))
        ),
        sender=text_or_none(data.get("sender")),
        owner=data.get("owner") is True,
        channel=_text(data, "channel"),
        source=parse_enum(Source, data.get("source")) or Source.OTHER,
        model=text_or_none(data.get("model")),
        thinking=parse_enum(ReasoningEffort, data.get("thinking")),
        foreign=data.get("foreign") is True,
        origin=decode_origin(mapping_of(data["origin"])) if data.get("origin") else None,
        instructions=text_or_none(data.get("instructions")) or "",
        tools=tuple(map(_decode_tool, map(mapping_of, _items(data, "tools")))),
        results=tuple(filter(None, map(_decode_result, _items(data, "results")))),
    )


def _encode_program(inbound: Inbound) -> dict[str, Any]:
    """What only programs and clocks send along; nothing where a message has none of it."""
    facts = {
        "instructions": inbound.instructions,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in inbound.tools
        ],
        "results": [encode_message(result) for result in inbound.results],
        "thinking": inbound.thinking,
        "foreign": inbound.foreign,
    }
    return {name: value for name, value in facts.items() if value}


def _decode_tool(data: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(_text(data, "name"), _text(data, "description"), mapping_of(data.get("parameters")))


def _decode_result(data: object) -> ToolResult | None:
    message = decode_message(data)
    return message if isinstance(message, ToolResult) else None


def encode_origin(origin: Origin) -> dict[str, Any]:
    """An origin as plain data, without what is not known."""
    facts = {
        "channel": origin.channel,
        "account": origin.account,
        "kind": origin.kind.value,
        "peer": origin.peer,
        "guild": origin.guild,
        "team": origin.team,
        "thread": origin.thread,
        "sender": origin.sender,
        "senderName": origin.sender_name,
        "roles": list(origin.roles),
        "messageId": origin.message_id,
    }
    return {name: value for name, value in facts.items() if value}


def decode_origin(data: Mapping[str, Any]) -> Origin:
    """The origin in plain data; raises `ValueError` where it cannot be read."""
    return Origin(
        channel=_text(data, "channel"),
        account=_text(data, "account"),
        kind=PeerKind(_text(data, "kind")),
        peer=_text(data, "peer"),
        guild=text_or_none(data.get("guild")),
        team=text_or_none(data.get("team")),
        thread=text_or_none(data.get("thread")),
        sender=text_or_none(data.get("sender")),
        sender_name=text_or_none(data.get("senderName")),
        roles=tuple(map(str, _items(data, "roles"))),
        message_id=text_or_none(data.get("messageId")),
    )


def encode_outbound(outbound: Outbound) -> str:
    return _dump(
        {
            "run": outbound.run,
            **_encode_key(outbound.session),
            "sessionId": outbound.session_id,
            "status": outbound.status.value,
            "text": outbound.text,
            "model": outbound.model,
            "usage": encode_usage(outbound.usage),
            "calls": [
                {"name": call.name, "arguments": dict(call.arguments), "isError": call.is_error}
                for call in outbound.calls
            ],
            "replyTo": outbound.reply_to,
            "toCurrent": outbound.to_current,
            "media": list(outbound.media),
            "voice": outbound.voice,
            "silent": outbound.silent,
            "error": outbound.error,
            "handed": [
                {"id": call.id, "name": call.name, "arguments": dict(call.arguments)} for call in outbound.handed
            ],
        }
    )


def decode_outbound(text: str) -> Outbound:
    """The result in `text`; raises `ValueError` where it cannot be read."""
    data = _load(text)
    return Outbound(
        run=RunId(_text(data, "run")),
        session=_decode_key(data),
        session_id=_text(data, "sessionId"),
        status=TurnStatus(_text(data, "status")),
        text=_text(data, "text"),
        model=_text(data, "model"),
        usage=decode_usage(data.get("usage")),
        calls=tuple(
            CallSummary(_text(call, "name"), mapping_of(call.get("arguments")), call.get("isError") is True)
            for call in map(mapping_of, _items(data, "calls"))
        ),
        reply_to=text_or_none(data.get("replyTo")),
        to_current=data.get("toCurrent") is True,
        media=tuple(map(str, _items(data, "media"))),
        voice=data.get("voice") is True,
        silent=data.get("silent") is True,
        error=text_or_none(data.get("error")),
        handed=tuple(
            ToolCall(_text(call, "id"), _text(call, "name"), mapping_of(call.get("arguments")))
            for call in map(mapping_of, _items(data, "handed"))
        ),
    )


def _dump(data: Mapping[str, Any]) -> str:
    # ASCII only, so that half a character pair from a broken client survives instead of failing the write.
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"), default=str)


def _load(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is missing")
    return value


def _items(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"`{name}` is not a list")
    return value


def _encode_key(key: SessionKey) -> dict[str, str]:
    return {"session": key.text, "agent": key.agent}


def _decode_key(data: Mapping[str, Any]) -> SessionKey:
    try:
        return SessionKey.parse(_text(data, "session"), default_agent=AgentId(_text(data, "agent")))
    except UsageError as error:
        raise ValueError(str(error)) from error


def encode_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": {"total": usage.cost},
    }
