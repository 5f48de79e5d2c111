"""Messages as they enter and leave, as JSON that another process or a later start can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from retinue.core.envelope import CallSummary, Inbound, Outbound, Source
from retinue.core.errors import UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Image, Usage
from retinue.sessions.message_codec import decode_usage, mapping_of, parse_enum, text_or_none


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
            "usage": _encode_usage(outbound.usage),
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


def _encode_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": {"total": usage.cost},
    }
