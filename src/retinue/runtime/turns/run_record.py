"""The record of a run in the transcript: what context engines learn of it, and how far a dead process got."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from msgspec import Struct, field

from retinue.context.engine import ContextEngine, History
from retinue.core.envelope import Source
from retinue.core.events import ApprovalGiven, Emit, TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionId, SessionKey
from retinue.core.messages import AssistantMessage, Message, StopReason, ToolCall, ToolResult, UserMessage
from retinue.runtime.turns.suspicions import record_suspicions
from retinue.sessions.entries import (
    BESIDE,
    DECIDED,
    MERGED,
    CallStarted,
    EntryId,
    MessageAdded,
    Noted,
    TranscriptEntry,
)
from retinue.sessions.protocol import StoredSessions, StoredTranscript

log = logging.getLogger(__name__)

_ANSWERS = frozenset({StopReason.END, StopReason.LENGTH, StopReason.REFUSED})
"""Stop reasons with which a model finished its answer; such a turn was complete."""


class RunState(Enum):
    """What the transcripts of a session contain of a run: nothing, its message, its answer too, or only an archive."""

    NOTHING = "nothing"
    OPEN = "open"
    ANSWERED = "answered"
    ARCHIVED = "archived"


class RecordedRun(Struct, frozen=True):
    """How far a run got, and the model's answer in it."""

    state: RunState
    answers: tuple[AssistantMessage, ...] = ()


def find_run(store: StoredSessions, key: SessionKey, run: RunId) -> RecordedRun:
    """Search for a run in the session and in the one that was archived before it.

    A turn can be so long that its own beginning was compacted, and a session can be archived between the death of a
    process and the next one: in neither case may the work start again.
    """
    transcript = store.open(key)
    path = transcript.tree.path
    found = _search(path, run)
    if found.state is RunState.NOTHING and path and path[0].parent is not None:
        found = _search(store.entries(transcript.header.id) if transcript.header else path, run)
    if found.state is not RunState.NOTHING or transcript.header is None or transcript.header.parent is None:
        return found
    for archived in store.archived_entries(SessionId(transcript.header.parent)):
        before = _search(archived, run)
        if before.state is RunState.OPEN:
            return RecordedRun(RunState.ARCHIVED, before.answers)
        if before.state is not RunState.NOTHING:
            return before
    return found


def _search(entries: Iterable[TranscriptEntry], run: RunId) -> RecordedRun:
    said = answered = False
    turn = run
    """The run under which the turn's answers are recorded; another one if the message was merged into its turn."""
    answers: list[AssistantMessage] = []
    for entry in entries:
        match entry.body:
            case Noted(kind, {"runs": [*runs], "into": str(into)}) if kind == MERGED and run in runs:
                turn = RunId(into)
            case MessageAdded(UserMessage() | ToolResult(), of) if of in (run, turn):
                said = True  # Returned tool results start a turn too.
                answered = False
            case MessageAdded(AssistantMessage() as answer, of, source) if of == turn and source not in BESIDE:
                answers.append(answer)
                answered = answer.stop in _ANSWERS and not answer.calls
    state = RunState.ANSWERED if answered else RunState.OPEN if said else RunState.NOTHING
    return RecordedRun(state, tuple(answers))


class EngineFeed:
    """Tells a context engine what is added to the transcript of one session: each message once, and in order.

    Other parts add messages too, such as the results of calls that a dead process left, and so do other processes.
    Therefore each call passes on everything that was added since the last one.
    """

    def __init__(self, engine: ContextEngine, key: SessionKey) -> None:
        self._engine = engine
        self._key = key
        self._session: SessionId | None = None
        self._last: EntryId | None = None

    async def update(self, transcript: StoredTranscript) -> None:
        """Pass on new messages; a session that the engine does not know is passed on with its whole history."""
        known = transcript.header is not None and transcript.header.id == self._session
        added = transcript.tree.after(self._last) if known else None
        self._session = transcript.header.id if transcript.header else None
        self._last = transcript.tree.leaf
        if added is None:
            await self._engine.bootstrap(self._key, history_of(transcript))
            return
        for entry in added:
            if isinstance(entry.body, MessageAdded):
                await self._engine.ingest(self._key, entry.body.message, entry.body.source)

    async def end_turn(self, transcript: StoredTranscript, status: TurnStatus) -> None:
        await self.update(transcript)
        await self._engine.after_turn(self._key, history_of(transcript), status)


def history_of(transcript: StoredTranscript) -> History:
    """Return what of a transcript a context engine works with."""
    tree = transcript.tree
    return History(tree.messages, tree.summary, tree.started_calls)


def recording_decisions(emit: Emit, transcript: StoredTranscript) -> Emit:
    """Return an `Emit` that also records decisions on approval requests, for those who read the conversation later."""

    async def show(event: TurnEvent) -> None:
        if isinstance(event, ApprovalGiven):
            decision = event.decision
            facts = {"title": event.request.title, "verdict": decision.verdict.value, "because": decision.because}
            transcript.append(Noted(DECIDED, facts))
        await emit(event)

    return show


class TranscriptLedger(Struct, frozen=True):
    """Writes the messages of one run to its session's transcript."""

    transcript: StoredTranscript
    run: RunId
    source: Source
    feed: EngineFeed
    merged: dict[int, RunId] = field(default_factory=dict)
    """Messages that were taken into this run while it ran, by identity, with their own runs."""
    before_call: Callable[[ToolCall], Awaitable[None]] | None = None
    """Called before a call is recorded as started."""

    async def record(self, message: Message) -> None:
        run = self.merged.pop(id(message), self.run)
        self.transcript.append(MessageAdded(message, run, self.source))
        if run != self.run:  # After the message: without it, the message must not count as part of this turn.
            self.transcript.append(Noted(MERGED, {"runs": [run], "into": self.run}))
        record_suspicions(self.transcript, message)
        await self.feed.update(self.transcript)

    async def started(self, call: ToolCall) -> None:
        if self.before_call is not None:
            await self.before_call(call)
        arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
        digest = hashlib.sha256(arguments.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.transcript.append(CallStarted(call.id, call.name, digest, self.run))
