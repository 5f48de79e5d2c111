"""The record of a turn in the transcript."""

from __future__ import annotations

import hashlib
import json

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.keys import RunId
from retinue.core.messages import Message, ToolCall
from retinue.sessions.entries import MERGED, CallStarted, MessageAdded, Noted
from retinue.sessions.transcript import Transcript


class TranscriptLedger(Struct, frozen=True):
    """Writes the messages of one run to its session's transcript."""

    transcript: Transcript
    run: RunId
    source: Source
    merged: dict[int, RunId] = field(default_factory=dict)
    """Messages that were taken into this run while it ran, by identity, with their own runs."""

    async def record(self, message: Message) -> None:
        run = self.merged.pop(id(message), self.run)
        self.transcript.append(MessageAdded(message, run, self.source))
        if run != self.run:  # After the message: without it, the message must not count as part of this turn.
            self.transcript.append(Noted(MERGED, {"runs": [run], "into": self.run}))

    async def started(self, call: ToolCall) -> None:
        arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
        digest = hashlib.sha256(arguments.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.transcript.append(CallStarted(call.id, call.name, digest, self.run))
