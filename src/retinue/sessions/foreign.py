"""The lines of a transcript of OpenClaw as entries of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.sessions.codec import EPOCH, READER, decode_line, format_time, parse_time
from retinue.sessions.entries import VERSION, Entry, EntryId, Header, MessageAdded
from retinue.sessions.foreign_messages import Shape, said_by_nobody, spell_message
from retinue.sessions.message_codec import mapping_of, text_or_none
from retinue.sessions.session import LABEL


def split_objects(line: bytes) -> Iterator[Mapping[str, Any]]:
    """The objects on a line: one, or several where two writers met; raises `ValueError` at what is none."""
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


class Translation(Struct):
    """Takes the lines of one transcript in order and gives entries whose tree is whole.

    `shared` says that others than the owner spoke in this chat. Lines of the first format, which had no ids, follow
    each other; what hung on a line that could not be read hangs on the last one that could.
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
        """The entry that the next one follows."""
        return self._last

    @property
    def time(self) -> datetime:
        """When the last thing happened."""
        return self._time

    def take(self, data: Mapping[str, Any]) -> tuple[Entry, ...]:
        """The entries that a line stands for: none for a header, several where we keep apart what they put together.

        Raises `ValueError` for a line that nobody could write again.
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
        shapes = self._spell(data)
        for number, shape in enumerate(shapes, 1):
            # The last one keeps the name: it is what the next line follows.
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

    def _entry(self, shape: Shape, name: EntryId, parent: EntryId | None) -> Entry:
        stamp = {"id": name, "parentId": parent, "timestamp": format_time(self._time)}
        try:
            entry = decode_line(json.dumps(shape | stamp).encode())
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(entry, Entry):
            raise ValueError("it cannot be written as an entry")
        self.messages += isinstance(entry.body, MessageAdded)
        return entry

    def _spell(self, data: Mapping[str, Any]) -> list[Shape]:
        """The line in our spelling; one of no known kind stays as it is."""
        kept = {name: data[name] for name in ("run", "source") if name in data}
        match data:
            case {"type": "message", "message": dict(message)}:
                spoken = spell_message(message, shared=self.shared)
                if spoken is not None:
                    shapes = [{"type": "message", "message": each, **kept} for each in spoken]
                    return [_mark_source(shape, message) for shape in shapes]
            case {"type": "custom_message", "content": content}:
                return [_aside(said_by_nobody(content))]
            case {"type": "branch_summary", "summary": str(summary)}:
                return [_aside(said_by_nobody(f"[What was said on another branch of this conversation]\n{summary}"))]
            case {"type": "compaction", "summary": str(summary)}:
                return [self._spell_compaction(data, summary)]
            case {"type": "session_info", "name": str(name)}:
                return [_note("retinue:setting", {"name": LABEL, "value": name})]
            case {"type": "custom", "customType": str(kind)}:
                values = data.get("data", {})
                return [_note(kind, values if isinstance(values, dict) else {"value": values})]
            case {"type": "model_change" | "thinking_level_change" | "label" as kind}:
                # There these lines tell what was used; here they would be a person's choice, and outlive the model.
                rest = {name: value for name, value in data.items() if name not in ("id", "parentId", "type")}
                return [_note(f"openclaw:{kind}", rest)]
        return [dict(data)]

    def _spell_compaction(self, data: Mapping[str, Any], summary: str) -> Shape:
        """A summary is no more to be trusted than the pages and tools that were summed up."""
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
        """The first format named a line by its number."""
        return self._places[place] if isinstance(place, int) and 0 <= place < len(self._places) else ""


def make_header(translation: Translation, header: Header) -> Header:
    """Our header for a transcript: what theirs said of it, where it said anything."""
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
    """Only what a person said counts as somebody being there."""
    kind = mapping_of(message.get("provenance")).get("kind")
    not_a_person = kind in ("inter_session", "internal_system") or message.get("role") in ("custom", "hookMessage")
    return shape | {"source": Source.OTHER.value} if not_a_person else shape
