"""Converting the lines of an OpenClaw transcript to entries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.sessions.entries import VERSION, EntryId, Header, MessageAdded, TranscriptEntry
from retinue.sessions.jsonl.codec import EPOCH, READER, decode_line, format_time, parse_time
from retinue.sessions.jsonl.message_codec import mapping_of, text_or_none
from retinue.sessions.openclaw.messages import Shape, context_message, convert_message
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
