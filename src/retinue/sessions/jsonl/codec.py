"""The JSON codec of transcript lines, in OpenClaw's format: strict when writing, tolerant when reading."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from msgspec import Struct

from retinue.core.envelope import Source
from retinue.core.errors import SessionError, UsageError
from retinue.core.keys import AgentId, RunId, SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import (
    VERSION,
    Body,
    CallStarted,
    Compacted,
    EntryId,
    Header,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
    TranscriptEntry,
    Unknown,
)
from retinue.sessions.jsonl.message_codec import (
    decode_label,
    decode_message,
    encode_label,
    encode_message,
    mapping_of,
    parse_enum,
    text_or_none,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CALL_STARTED = "retinue:call-started"
_INTERRUPTED = "retinue:interrupted"
_SETTING = "retinue:setting"
_RESERVED = frozenset({_CALL_STARTED, _INTERRUPTED, _SETTING})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


READER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Accepts standard JSON only, without `NaN` and `Infinity`."""


class UnreadableLine(Struct, frozen=True):
    """A line is not a JSON object; `reason` says why."""

    reason: str


def encode_line(value: Header | TranscriptEntry) -> bytes:
    """Encode an entry as a line with its newline; raise `SessionError` if decoding would not return the same value."""
    data = _encode_header(value) if isinstance(value, Header) else _encode_entry(value)
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"An entry cannot be written to the transcript: {error}. Only plain JSON can.") from error
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        # A model can write half of a surrogate pair, which can only be stored escaped.
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> Header | TranscriptEntry | UnreadableLine:
    """Decode a line, with or without its newline. A JSON object of an unknown kind becomes `Unknown`."""
    try:
        # Bytes that are not UTF-8 become replacement characters; the line is still read.
        text = line.decode(errors="replace").strip(" \t\r\n")
        data, end = READER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        return UnreadableLine(f"not JSON: {error}")
    if end < len(text):
        return UnreadableLine("more than one object")
    if not isinstance(data, dict):
        return UnreadableLine("not a JSON object")
    if data.get("type") == "session":
        return _decode_header(data)
    return TranscriptEntry(
        id=EntryId(text_or_none(data.get("id")) or ""),
        parent=EntryId(parent) if (parent := text_or_none(data.get("parentId"))) else None,
        timestamp=parse_time(data.get("timestamp")),
        body=_decode_body(data),
    )


def format_time(moment: datetime) -> str:
    """Format a time as in transcripts; raise `SessionError` for a time without a zone."""
    if moment.tzinfo is None:
        raise SessionError(f"The time {moment.isoformat()} has no zone and cannot be written to a transcript.")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_time(value: object) -> datetime:
    """Parse ISO text or milliseconds as UTC; an invalid time becomes 1970, so that the line is still read."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            # The conversion to UTC can exceed the range of dates; that must fail here and not when the time is written.
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        pass
    return EPOCH


def _encode_header(header: Header) -> dict[str, Any]:
    data: dict[str, Any] = {
        "type": "session",
        "version": header.version,
        "id": header.id,
        "timestamp": format_time(header.timestamp),
        "cwd": header.cwd,
    }
    if header.parent is not None:
        data["parentSession"] = header.parent
    if header.key is not None:
        data |= {"sessionKey": header.key.text, "agentId": header.key.agent}
    return data


def _decode_header(data: Mapping[str, Any]) -> Header:
    version = data.get("version")
    return Header(
        id=SessionId(text_or_none(data.get("id")) or ""),
        timestamp=parse_time(data.get("timestamp")),
        cwd=text_or_none(data.get("cwd")) or "",
        key=_decode_key(data),
        parent=text_or_none(data.get("parentSession")),
        version=version if isinstance(version, int) else VERSION,
    )


def _decode_key(data: Mapping[str, Any]) -> SessionKey | None:
    text, agent = text_or_none(data.get("sessionKey")), text_or_none(data.get("agentId"))
    if text is None:
        return None
    try:
        return SessionKey.parse(text, default_agent=AgentId(agent)) if agent else SessionKey.parse(text)
    except UsageError:
        return None


def _encode_entry(entry: TranscriptEntry) -> dict[str, Any]:
    if isinstance(entry.body, Unknown):
        return dict(entry.body.raw)
    if not entry.id:
        raise SessionError("An entry without an id cannot be written to a transcript.")
    kind, rest = _encode_body(entry.body)
    stamp = {"type": kind, "id": entry.id, "parentId": entry.parent, "timestamp": format_time(entry.timestamp)}
    return stamp | rest


def _encode_body(body: Body) -> tuple[str, dict[str, Any]]:
    match body:
        case MessageAdded(message, run, source):
            extra = {"run": run} if run is not None else {}
            return "message", {"message": encode_message(message), "source": source.value, **extra}
        case ModelChanged(model):
            provider, name = (model.provider, model.model) if model else (None, None)
            return "model_change", {"provider": provider, "modelId": name}
        case ThinkingChanged(level):
            return "thinking_level_change", {"thinkingLevel": level.value if level else None}
        case Compacted():
            return "compaction", {
                "summary": body.summary,
                "firstKeptEntryId": body.first_kept,
                "tokensBefore": body.tokens_before,
                "details": dict(body.details),
                **encode_label(body.label),
            }
        case SettingChanged(name, value):
            return _custom(_SETTING, {"name": name, "value": value})
        case CallStarted(call_id, tool, arguments_hash, run):
            data = {"callId": call_id, "tool": tool, "argumentsHash": arguments_hash, "run": run}
            return _custom(_CALL_STARTED, data)
        case Interrupted(reason, calls, run):
            return _custom(_INTERRUPTED, {"reason": reason, "calls": list(calls), "run": run})
        case Noted(kind, data):
            if kind in _RESERVED:
                raise SessionError(f"'{kind}' has its own kind of entry and cannot be written as a note.")
            return _custom(kind, dict(data))
        case Unknown(raw):
            return str(raw.get("type")), dict(raw)
    assert_never(body)


def _custom(kind: str, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "custom", {"customType": kind, "data": data}


def _decode_body(data: Mapping[str, Any]) -> Body:
    """Decode the body of a line; if any part does not fit its type, the whole body is `Unknown`."""
    body: Body | None = None
    match data.get("type"):
        case "message":
            message = decode_message(data.get("message"))
            if message is not None:
                body = MessageAdded(message, _run(data), parse_enum(Source, data.get("source", "chat")) or Source.OTHER)
        case "model_change":
            body = _decode_model_change(data)
        case "thinking_level_change":
            name = data.get("thinkingLevel")
            level = parse_enum(ReasoningEffort, name)
            body = ThinkingChanged(level) if level is not None or name is None else None
        case "compaction":
            body = _decode_compaction(data)
        case "custom":
            body = _decode_custom(data)
    return body if body is not None else Unknown(data)


def _decode_model_change(data: Mapping[str, Any]) -> ModelChanged | None:
    match data:
        case {"provider": str(provider), "modelId": str(model)} if provider and model:
            return ModelChanged(ModelRef(provider, model))
        case {"provider": None, "modelId": None}:
            return ModelChanged(None)
    return None


def _decode_compaction(data: Mapping[str, Any]) -> Compacted | None:
    summary, kept, tokens = data.get("summary"), data.get("firstKeptEntryId"), data.get("tokensBefore")
    if not isinstance(summary, str) or not isinstance(kept, str | None):
        return None
    return Compacted(
        summary=summary,
        first_kept=EntryId(kept) if kept is not None else None,
        tokens_before=tokens if isinstance(tokens, int) else 0,
        details=mapping_of(data.get("details")),
        label=decode_label(data, Label.AGENT),
    )


def _decode_custom(data: Mapping[str, Any]) -> Body | None:
    match data:
        case {"customType": str(kind), "data": dict(values)}:
            pass
        case {"customType": str(kind)} if "data" not in data:
            values = {}
        case _:
            return None
    match kind, values:
        case "retinue:setting", {"name": str(name), "value": str() | None as value}:
            return SettingChanged(name, value)
        case "retinue:call-started", {"callId": str(call), "tool": str(tool), "argumentsHash": str(fingerprint)}:
            return CallStarted(call, tool, fingerprint, _run(values))
        case "retinue:interrupted", {"reason": str(reason), "calls": list(calls)}:
            return Interrupted(reason, tuple(str(call) for call in calls), _run(values))
    return None if kind in _RESERVED else Noted(kind, values)


def _run(data: Mapping[str, Any]) -> RunId | None:
    run = text_or_none(data.get("run"))
    return RunId(run) if run is not None else None
