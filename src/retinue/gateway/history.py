"""A session's messages as clients read them: what was delivered, or on request what the model wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.core.envelope import Source
from retinue.core.messages import AssistantMessage
from retinue.dispatch.delivery import Reply, VisibleStream
from retinue.dispatch.visible import show_message
from retinue.sessions.entries import Entry, MessageAdded
from retinue.sessions.export import export_json
from retinue.sessions.tail import read_whole


@dataclass(frozen=True, slots=True)
class Reading:
    """How a history is read. `heartbeats` tells that the whole session is made of them."""

    limit: int
    redact: Callable[[str], str]
    ack_max_chars: int
    heartbeats: bool = False
    raw: bool = False


def read_messages(path: Path, reading: Reading) -> tuple[list[dict[str, Any]], int]:
    """The newest messages of a transcript in the shape of its own lines, and how many there are in all."""
    _, tree = read_whole(path)
    messages = [entry for entry in tree.path if isinstance(entry.body, MessageAdded)]
    newest = messages[-reading.limit :]
    if reading.raw:
        return _plain(newest, reading), len(messages)
    shown = [_show(entry, reading) for entry in newest]
    lines = _plain([entry for entry, _ in shown], reading)
    for line, (_, reply) in zip(lines, shown, strict=True):
        facts = _describe(reply, reading) if reply else {}
        if facts:
            line["delivery"] = facts
    return lines, len(messages)


def _show(entry: Entry, reading: Reading) -> tuple[Entry, Reply | None]:
    body = entry.body
    if not isinstance(body, MessageAdded) or not isinstance(body.message, AssistantMessage):
        return entry, None
    is_beat = reading.heartbeats or body.source is Source.HEARTBEAT
    stream = VisibleStream(heartbeat=is_beat, ack_max_chars=reading.ack_max_chars)
    message, reply = show_message(body.message, stream)
    return replace(entry, body=replace(body, message=message)), reply


def _describe(reply: Reply, reading: Reading) -> dict[str, Any]:
    """What a reply told the program, without what it did not."""
    facts = {
        "media": [reading.redact(each) for each in reply.media],
        "replyTo": reply.reply_to,
        "toCurrent": reply.to_current,
        "voice": reply.voice,
        "silent": reply.silent,
    }
    return {name: value for name, value in facts.items() if value}


def _plain(entries: list[Entry], reading: Reading) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(export_json(None, entries, redact=reading.redact))["entries"]
    return lines
