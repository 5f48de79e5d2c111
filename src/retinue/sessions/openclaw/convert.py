"""Converting the lines and messages of an OpenClaw transcript, of old and new formats, to entries.

Messages are converted from JSON to JSON; `message_codec` decodes the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.labels import Label
from retinue.core.messages import INVALID_ARGUMENTS
from retinue.sessions.entries import VERSION, EntryId, Header, MessageAdded, TranscriptEntry
from retinue.sessions.jsonl.codec import EPOCH, READER, decode_line, format_time, parse_time
from retinue.sessions.jsonl.message_codec import mapping_of, text_or_none
from retinue.sessions.session import LABEL


def split_objects(line: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects on a line (several if two writers collided); raise `ValueError` for anything else."""
    text, at = line.decode("utf-8-sig", errors="replace").strip(), 0
    while at < len(text):
        try:
            value, at = READER.raw_decode(text, at)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        yield value
        while at < len(text) and text[at].isspace():
            at += 1


class TranscriptConverter(Struct):
    """Converts the lines of one transcript, in order, to entries that form one tree.

    `shared` says that people other than the owner spoke in this chat. Lines of the first format, which had no ids,
    follow each other. An entry whose parent could not be read follows the last one that could.
    """

    shared: bool = False
    header: Header | None = None
    messages: int = 0
    _places: list[EntryId] = field(default_factory=list)
    _begins: dict[EntryId, EntryId] = field(default_factory=dict)
    _last: EntryId | None = None
    _time: datetime = EPOCH

    @property
    def last(self) -> EntryId | None:
        """The parent of the next entry."""
        return self._last

    @property
    def time(self) -> datetime:
        """The time of the last entry."""
        return self._time

    def take(self, data: Mapping[str, Any]) -> tuple[TranscriptEntry, ...]:
        """Return the entries for a line: none for a header, several if one line corresponds to several entries.

        Raise `ValueError` for a line that cannot be written as entries.
        """
        if data.get("type") == "session":
            self._take_header(data)
            return ()
        name = EntryId(text_or_none(data.get("id")) or f"line-{len(self._places)}")
        self._places.append(name)
        if name in self._begins:
            return ()
        self._time = self._time_of(data)
        parent = self._parent_of(data)
        entries = []
        shapes = self._convert(data)
        for number, shape in enumerate(shapes, 1):
            # The last one keeps the id, because the next line refers to it.
            own = name if number == len(shapes) else EntryId(f"{name}-{number}")
            entries.append(self._entry(shape, own, parent))
            parent = own
        self._begins[name] = entries[0].id
        self._last = name
        return tuple(entries)

    def _take_header(self, data: Mapping[str, Any]) -> None:
        self._places.append(EntryId(""))
        found = decode_line(json.dumps(data).encode())
        if self.header is None and isinstance(found, Header):
            self.header = found
            self._time = max(self._time, found.timestamp)

    def _time_of(self, data: Mapping[str, Any]) -> datetime:
        moment = parse_time(data.get("timestamp"))
        if moment == EPOCH:
            moment = parse_time(mapping_of(data.get("message")).get("timestamp"))
        return self._time if moment == EPOCH else moment

    def _parent_of(self, data: Mapping[str, Any]) -> EntryId | None:
        if "parentId" in data and data["parentId"] is None:
            return None
        wanted = EntryId(text_or_none(data.get("parentId")) or "")
        return wanted if wanted in self._begins else self._last

    def _entry(self, shape: Shape, name: EntryId, parent: EntryId | None) -> TranscriptEntry:
        stamp = {"id": name, "parentId": parent, "timestamp": format_time(self._time)}
        try:
            entry = decode_line(json.dumps(shape | stamp).encode())
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(entry, TranscriptEntry):
            raise ValueError("it cannot be written as an entry")
        self.messages += isinstance(entry.body, MessageAdded)
        return entry

    def _convert(self, data: Mapping[str, Any]) -> list[Shape]:
        """Return the line in our format; a line of an unknown kind is left unchanged."""
        kept = {name: data[name] for name in ("run", "source") if name in data}
        match data:
            case {"type": "message", "message": dict(message)}:
                spoken = convert_message(message, shared=self.shared)
                if spoken is not None:
                    shapes = [{"type": "message", "message": each, **kept} for each in spoken]
                    return [_mark_source(shape, message) for shape in shapes]
            case {"type": "custom_message", "content": content}:
                return [_aside(context_message(content))]
            case {"type": "branch_summary", "summary": str(summary)}:
                return [_aside(context_message(f"[What was said on another branch of this conversation]\n{summary}"))]
            case {"type": "compaction", "summary": str(summary)}:
                return [self._convert_compaction(data, summary)]
            case {"type": "session_info", "name": str(name)}:
                return [_note("retinue:setting", {"name": LABEL, "value": name})]
            case {"type": "custom", "customType": str(kind)}:
                values = data.get("data", {})
                return [_note(kind, values if isinstance(values, dict) else {"value": values})]
            case {"type": "model_change" | "thinking_level_change" | "label" as kind}:
                # In OpenClaw these lines record what was used; here they would be a person's choice.
                rest = {name: value for name, value in data.items() if name not in ("id", "parentId", "type")}
                return [_note(f"openclaw:{kind}", rest)]
        return [dict(data)]

    def _convert_compaction(self, data: Mapping[str, Any], summary: str) -> Shape:
        """Return a compaction; its summary is untrusted, like the pages and tool results it was made from."""
        kept = EntryId(text_or_none(data.get("firstKeptEntryId")) or self._at_place(data.get("firstKeptEntryIndex")))
        return {
            "type": "compaction",
            "summary": summary,
            "firstKeptEntryId": self._begins.get(kept),
            "tokensBefore": data.get("tokensBefore", 0),
            "details": mapping_of(data.get("details")),
            "trust": "untrusted",
        }

    def _at_place(self, place: object) -> str:
        """Return the entry on a line; the first format referred to lines by number."""
        return self._places[place] if isinstance(place, int) and 0 <= place < len(self._places) else ""


def convert_header(translation: TranscriptConverter, header: Header) -> Header:
    """Return our header with the values of the OpenClaw header, if there is one."""
    theirs = translation.header
    if theirs is None:
        return header
    started = theirs.timestamp if theirs.timestamp != EPOCH else header.timestamp
    return Header(header.id, started, theirs.cwd, header.key, theirs.parent, VERSION)


def _aside(message: Shape) -> Shape:
    return {"type": "message", "message": message, "source": Source.OTHER.value}


def _note(kind: str, data: Mapping[str, Any]) -> Shape:
    return {"type": "custom", "customType": kind, "data": dict(data)}


def _mark_source(shape: Shape, message: Mapping[str, Any]) -> Shape:
    """Set the source of a message that no person wrote, so that it does not count as an interaction."""
    kind = mapping_of(message.get("provenance")).get("kind")
    not_a_person = kind in ("inter_session", "internal_system") or message.get("role") in ("custom", "hookMessage")
    return shape | {"source": Source.OTHER.value} if not_a_person else shape


Shape = dict[str, Any]

_INTERNAL = re.compile(
    r"\s*<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?(?:<<<END_OPENCLAW_INTERNAL_CONTEXT>>>\s*|\Z)", re.DOTALL
)
_STAMP = re.compile(r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [^\]\n]{1,40}\] ?")
_RUNTIME = re.compile(r"\n+Runtime: [^\n]*\Z")

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
            return _convert_user(message, parts, Label.UNTRUSTED if shared else Label.OWNER)
        case "assistant":
            return [_convert_answer(message, parts)]
        case "custom" | "hookMessage":
            return _convert_user(message, parts, Label.UNTRUSTED)
        case "bashExecution":
            text = f"[Ran `{message.get('command')}`]\n{message.get('output') or ''}"
            return [context_message(text)]
        case "branchSummary" | "compactionSummary":
            return [context_message(str(message.get("summary") or ""))]
    return [_convert_result(message, parts)] if role.lower() in _RESULT_ROLES else None


def context_message(content: object) -> Shape:
    """Return a message that no person wrote."""
    spoken = [shape for part in _parts_of(content) if (shape := _convert_text_or_image(part))]
    return {"role": "user", "content": spoken, "trust": Label.UNTRUSTED.origin}


def _convert_user(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], label: Label) -> list[Shape]:
    """Return a user message and its tool results, which old transcripts store as parts of the user message."""
    results = [_convert_result(part, _parts_of(part.get("content"))) for part in parts if _type(part) in _RESULT_TYPES]
    spoken = [shape for part in parts if _type(part) not in _RESULT_TYPES and (shape := _convert_text_or_image(part))]
    kind = text_or_none(mapping_of(message.get("provenance")).get("kind"))
    if label.is_owners and kind not in (None, "external_user"):
        label = Label.AGENT
    if mapping_of(message.get("__openclaw")).get("senderIsOwner") is False:
        label = Label.UNTRUSTED
    spoken = [_without_context(shape) for shape in spoken]
    if not spoken and results:
        return results
    user: Shape = {"role": "user", "content": spoken, "trust": label.origin}
    sender = next((name for key in ("sender", "senderName") if (name := text_or_none(message.get(key)))), None)
    extra = {"sender": sender, "preface": text_or_none(message.get("preface"))}
    return [*results, user | {name: value for name, value in extra.items() if value}]


def _without_context(shape: Shape) -> Shape:
    """Return a part of a user message without what OpenClaw added to the text."""
    return shape | {"text": strip_context(shape["text"])} if shape.get("type") == "text" else shape


def strip_context(text: str) -> str:
    """Remove the time stamp, the internal context and the `Runtime:` line that OpenClaw adds to messages."""
    if "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>" in text:
        text = _INTERNAL.sub("", text)
    stamp = _STAMP.match(text)
    return _RUNTIME.sub("", text[stamp.end() :] if stamp else text)


def _convert_answer(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Shape:
    stop = text_or_none(message.get("stopReason")) or text_or_none(message.get("stop_reason")) or "stop"
    kept = ("provider", "model", "errorMessage")
    return {
        "role": "assistant",
        "content": [shape for part in parts if (shape := _convert_part(part))],
        "usage": convert_usage(message.get("usage")),
        "stopReason": _STOPS.get(stop, stop),
        **{name: message[name] for name in kept if isinstance(message.get(name), str)},
    }


def _convert_result(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Shape:
    names = ("toolCallId", "tool_call_id", "toolUseId", "tool_use_id")
    call = next((value for name in names if (value := text_or_none(message.get(name)))), "")
    failed = any(message.get(name) is True for name in ("isError", "is_error"))
    return {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": text_or_none(message.get("toolName")) or text_or_none(message.get("name")) or "",
        "content": [shape for part in parts if (shape := _convert_text_or_image(part))],
        "isError": failed,
        "trust": Label.UNTRUSTED.origin,
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


def _convert_part(part: Mapping[str, Any]) -> Shape | None:
    """Return a part of an answer; a part of an unknown kind becomes its name in brackets."""
    kind = _type(part)
    if kind in _CALL_TYPES:
        call = {"type": "toolCall", "id": str(part.get("id") or ""), "name": str(part.get("name") or "")}
        arguments: object = next((part[name] for name in ("arguments", "input", "args") if name in part), {})
        signature = text_or_none(part.get("thoughtSignature"))
        return call | {"arguments": _convert_arguments(arguments)} | _if_any("thoughtSignature", signature)
    if kind == "thinking":
        text = text_or_none(part.get("thinking")) or text_or_none(part.get("text")) or ""
        signature = text_or_none(part.get("thinkingSignature")) or text_or_none(part.get("signature"))
        hidden = {"redacted": True} if part.get("redacted") is True else {}
        return {"type": "thinking", "thinking": text} | _if_any("thinkingSignature", signature) | hidden
    if kind == "redacted_thinking":
        return {"type": "thinking", "thinking": "", "redacted": True} | _if_any("thinkingSignature", part.get("data"))
    return _convert_text_or_image(part)


def _convert_text_or_image(part: Mapping[str, Any]) -> Shape | None:
    """Return a text or image part."""
    kind = _type(part)
    text = text_or_none(part.get("text"))
    if kind in ("text", "input_text", "output_text") and text is not None:
        return {"type": "text", "text": text}
    if kind in ("image", "image_url"):
        picture = _convert_image(part)
        if picture is not None:
            return picture
    return {"type": "text", "text": f"[{kind}]"} if part else None


def _convert_image(part: Mapping[str, Any]) -> Shape | None:
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


def _convert_arguments(value: object) -> Shape:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {INVALID_ARGUMENTS: value}
    return dict(value) if isinstance(value, dict) else {INVALID_ARGUMENTS: json.dumps(value)}


def _if_any(name: str, value: object) -> Shape:
    return {name: value} if isinstance(value, str) and value else {}
