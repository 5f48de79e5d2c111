"""The context engine decides which part of a session's history the model reads: protocol and default engine."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from retinue.context.compaction import CompactionRefused, RefusalReason, Summarise, summary_limits, tokens_to_keep
from retinue.context.cutpoints import plan_cut, summary_message, trust_of
from retinue.context.measure import estimate
from retinue.context.pruning import NO_MARKS, PruneMarks, prune
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.core.envelope import Source
from retinue.core.keys import SessionKey
from retinue.core.messages import Message
from retinue.core.trust import Trust, least
from retinue.security.redaction import Redact, Redactor
from retinue.sessions.entries import Compacted, MessageAdded, TranscriptEntry
from retinue.sessions.repair import repair

NOTHING_TO_COMPACT = CompactionRefused("There is nothing to compact yet; the history was kept.", RefusalReason.NOTHING)

_SESSIONS_REMEMBERED = 256
_FORCED_SHARE = 3
_KNOWN_KEYS = Redactor()


class History(Struct, frozen=True):
    """The history of a session: the last summary and the messages after it.

    `started` are the tool calls known to have started, None if unknown.
    """

    messages: tuple[Message, ...]
    summary: Compacted | None = None
    started: frozenset[str] | None = None

    @property
    def trust(self) -> Trust:
        """The trust of a request made from this history."""
        before = [self.summary.trust] if self.summary else []
        return least([*before, *map(trust_of, self.messages)])


class AssembleRequest(Struct, frozen=True):
    """The input of a model call.

    `overhead` is the number of tokens of the system prompt and the tools; `last_cache_touch` is the time of the
    session's last model call.
    """

    session: SessionKey
    history: History
    window: int
    now: datetime
    last_cache_touch: datetime | None = None
    overhead: int = 0


class Assembled(Struct, frozen=True):
    """The messages to send, and the estimated size of the whole request.

    `pruned` says that old tool results were shortened now; `notes` describe repairs of the history.
    """

    messages: tuple[Message, ...]
    estimated_tokens: int
    pruned: bool = False
    notes: tuple[str, ...] = ()
    trust: Trust = Trust.OWNER


class CompactRequest(Struct, frozen=True):
    """The input of a compaction: the entries that the model reads (`TranscriptTree.kept`) and the summary before them.

    `force` compacts even a history within its limits: a person asked for it, or a provider rejected it as too long.
    """

    session: SessionKey
    entries: tuple[TranscriptEntry, ...]
    window: int
    ask: Summarise
    previous: Compacted | None = None
    focus: str = ""
    force: bool = False

    @property
    def history(self) -> History:
        spoken = tuple(entry.body.message for entry in self.entries if isinstance(entry.body, MessageAdded))
        return History(spoken, self.previous)

    @property
    def tokens(self) -> int:
        """The current size of the history in tokens."""
        return estimate(history_messages(self.history))


class Compaction(Struct, frozen=True):
    """An entry to append to the transcript, and the size of the history with it."""

    entry: Compacted
    tokens_after: int


class ContextEngine(Protocol):
    """Decides which part of a history a model reads. A plugin may provide one; transcripts stay authoritative."""

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        """Handle that a session was opened or reset."""
        ...

    async def assemble(self, request: AssembleRequest) -> Assembled:
        """Return the messages of the next model call."""
        ...

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        """Handle that a message was written to the transcript."""
        ...

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        """Shorten the history, or return why not."""
        ...


class DefaultEngine:
    """Sends the last summary and all messages after it, each call with its result, old tool results pruned."""

    def __init__(
        self, compaction: CompactionSettings, pruning: ContextPruningSettings, *, redact: Redact = _KNOWN_KEYS
    ) -> None:
        self._compaction = compaction
        self._pruning = pruning
        self._redact = redact
        self._marks: OrderedDict[SessionKey, PruneMarks] = OrderedDict()

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        self._marks.pop(session, None)

    async def assemble(self, request: AssembleRequest) -> Assembled:
        whole, notes = repair(request.history.messages, request.history.started)
        pruned = prune(
            history_messages(History(whole, request.history.summary)),
            self._pruning,
            window_tokens=request.window,
            last_cache_touch=request.last_cache_touch,
            now=request.now,
            marks=self._marks.get(request.session, NO_MARKS),
        )
        self._remember(request.session, pruned.marks)
        tokens = request.overhead + estimate(pruned.messages)
        return Assembled(pruned.messages, tokens, pruned.changed, notes, request.history.trust)

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        """Do nothing: the transcript already contains the message."""

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        keep = tokens_to_keep(request.window, self._compaction)
        if request.force:
            keep = min(keep, request.tokens // _FORCED_SHARE)
        # Imported here because most processes never compact.
        from retinue.context.summary import summarise

        plan = plan_cut(request.entries, keep, previous=request.previous)
        if plan is None:
            return NOTHING_TO_COMPACT
        limits = summary_limits(request.window, self._compaction)
        summary = await summarise(plan, request.ask, self._compaction, limits, focus=request.focus, redact=self._redact)
        if isinstance(summary, CompactionRefused):
            return summary
        entry = summary.as_compacted(plan)
        return Compaction(entry, estimate(history_messages(History(plan.kept, entry))))

    def _remember(self, session: SessionKey, marks: PruneMarks) -> None:
        self._marks[session] = marks
        self._marks.move_to_end(session)
        if len(self._marks) > _SESSIONS_REMEMBERED:
            self._marks.popitem(last=False)


def history_messages(history: History) -> tuple[Message, ...]:
    """Return a history as a model reads it: the summary first."""
    return (*([summary_message(history.summary)] if history.summary else []), *history.messages)
