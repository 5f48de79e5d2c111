"""A session's messages for clients: the text that was delivered or, on request, what the model wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import Source
from retinue.core.messages import AssistantMessage
from retinue.dispatch.delivery import ParsedReply, VisibleStream
from retinue.dispatch.visible import show_message
from retinue.sessions.entries import MessageAdded, TranscriptEntry
from retinue.sessions.export import export_json
from retinue.sessions.transcript import read_whole


class HistoryOptions(Struct, frozen=True):
    """How a history is read. `heartbeats` means that the session consists of heartbeats."""

    limit: int
    redact: Callable[[str], str]
    ack_max_chars: int
    heartbeats: bool = False
    raw: bool = False


def read_messages(path: Path, options: HistoryOptions) -> tuple[list[dict[str, Any]], int]:
    """The newest messages of a transcript as its lines, and the total number of messages."""
    _, tree = read_whole(path)
    messages = [entry for entry in tree.path if isinstance(entry.body, MessageAdded)]
    newest = messages[-options.limit :]
    if options.raw:
        return _plain(newest, options), len(messages)
    shown = [_show(entry, options) for entry in newest]
    lines = _plain([entry for entry, _ in shown], options)
    for line, (_, reply) in zip(lines, shown, strict=True):
        facts = _describe(reply, options) if reply else {}
        if facts:
            line["delivery"] = facts
    return lines, len(messages)


def _show(entry: TranscriptEntry, options: HistoryOptions) -> tuple[TranscriptEntry, ParsedReply | None]:
    body = entry.body
    if not isinstance(body, MessageAdded) or not isinstance(body.message, AssistantMessage):
        return entry, None
    is_beat = options.heartbeats or body.source is Source.HEARTBEAT
    stream = VisibleStream(heartbeat=is_beat, ack_max_chars=options.ack_max_chars)
    message, reply = show_message(body.message, stream)
    return replace(entry, body=replace(body, message=message)), reply


def _describe(reply: ParsedReply, options: HistoryOptions) -> dict[str, Any]:
    """The directives that a reply contains."""
    facts = {
        "media": [options.redact(each) for each in reply.media],
        "replyTo": reply.reply_to,
        "toCurrent": reply.to_current,
        "voice": reply.voice,
        "silent": reply.silent,
    }
    return {name: value for name, value in facts.items() if value}


def _plain(entries: list[TranscriptEntry], options: HistoryOptions) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(export_json(None, entries, redact=options.redact))["entries"]
    return lines
