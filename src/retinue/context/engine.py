"""The context engine decides which part of a session's history the model reads.

A plugin's engine has the default engine as fallback, so a failing plugin never stops a turn.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.context.compaction import (
    CompactionRefused,
    RefusalReason,
    Summarise,
    plan_cut,
    summary_limits,
    summary_message,
    tokens_to_keep,
)
from retinue.context.measure import estimate
from retinue.context.pruning import NO_MARKS, PruneMarks, prune
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.core.envelope import Source
from retinue.core.errors import RetinueError
from retinue.core.events import TurnStatus
from retinue.core.keys import SessionKey
from retinue.core.labels import Label, mix
from retinue.core.messages import Message, label_of
from retinue.security.redaction import Redact, Redactor
from retinue.sessions.entries import Compacted, MessageAdded, TranscriptEntry
from retinue.sessions.repair import repair

NOTHING_TO_COMPACT = CompactionRefused("There is nothing to compact yet; the history was kept.", RefusalReason.NOTHING)

_SESSIONS_REMEMBERED = 256
FORCED_SHARE = 3
"""A compaction that a person asked for keeps at most this part of the history."""
_KNOWN_KEYS = Redactor()


class History(Struct, frozen=True):
    """The history of a session: the last summary and the messages after it.

    `started` are the tool calls known to have started, None if unknown.
    """

    messages: tuple[Message, ...]
    summary: Compacted | None = None
    started: frozenset[str] | None = None

    @property
    def label(self) -> Label:
        """The label of a request made from this history."""
        before = [self.summary.label] if self.summary else []
        return mix([*before, *label_of.of_all(self.messages)])


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
    label: Label = Label.OWNER


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
    """Decides which part of a history a model reads. A plugin may provide one; transcripts stay authoritative.

    An engine learns of every message once: in the history of `bootstrap`, or by `ingest`. The calls of a session are
    never concurrent.
    """

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        """Handle that a session is used for the first time by this process, or was reset."""
        ...

    async def assemble(self, request: AssembleRequest) -> Assembled:
        """Return the messages of a turn's first model call; the further ones add to them until a compaction."""
        ...

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        """Handle that a message was written to the transcript."""
        ...

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        """Shorten the history, or return why not."""
        ...

    async def after_turn(self, session: SessionKey, history: History, status: TurnStatus) -> None:
        """Handle that a turn ended, also one that failed or was stopped."""
        ...


class EngineParts(Struct, frozen=True):
    """What a context engine of an agent is made of: its settings, and a function that removes secrets from texts."""

    compaction: CompactionSettings
    pruning: ContextPruningSettings
    redact: Redact


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
        return Assembled(pruned.messages, tokens, pruned.changed, notes, request.history.label)

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        """Do nothing: the transcript already contains the message."""

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        keep = tokens_to_keep(request.window, self._compaction)
        if request.force:
            keep = min(keep, request.tokens // FORCED_SHARE)
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

    async def after_turn(self, session: SessionKey, history: History, status: TurnStatus) -> None:
        """Do nothing."""

    def _remember(self, session: SessionKey, marks: PruneMarks) -> None:
        self._marks[session] = marks
        self._marks.move_to_end(session)
        if len(self._marks) > _SESSIONS_REMEMBERED:
            self._marks.popitem(last=False)


def history_messages(history: History) -> tuple[Message, ...]:
    """Return a history as a model reads it: the summary first."""
    return (*([summary_message(history.summary)] if history.summary else []), *history.messages)


log = logging.getLogger(__name__)

OnFailure = Callable[[str], Awaitable[None]]
"""Called with a message about the failure and the fallback."""

R = TypeVar("R")


class EngineFailed(RetinueError):
    """A context engine returned an invalid result."""


class FallbackEngine(Struct, frozen=True):
    """Calls `primary` and, if it raises, times out or returns an invalid result, `default`.

    Results of `primary` are checked: every call has its result, a compaction makes the history shorter, and nothing
    made from untrusted text is trusted.
    """

    primary: ContextEngine
    default: ContextEngine
    on_failure: OnFailure
    seconds: float = 15.0
    compact_seconds: float = 240.0

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        await self.default.bootstrap(session, history)
        await self._attempt("bootstrap", lambda: self.primary.bootstrap(session, history), self.seconds)

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        await self.default.ingest(session, message, source)
        await self._attempt("ingest", lambda: self.primary.ingest(session, message, source), self.seconds)

    async def after_turn(self, session: SessionKey, history: History, status: TurnStatus) -> None:
        await self.default.after_turn(session, history, status)
        await self._attempt("after_turn", lambda: self.primary.after_turn(session, history, status), self.seconds)

    async def assemble(self, request: AssembleRequest) -> Assembled:
        found = await self._attempt("assemble", lambda: self._assemble(request), self.seconds)
        return found or await self.default.assemble(request)

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        found = await self._attempt("compact", lambda: self._compact(request), self.compact_seconds)
        return found or await self.default.compact(request)

    async def _assemble(self, request: AssembleRequest) -> Assembled:
        assembled = await self.primary.assemble(request)
        messages, notes = repair(assembled.messages, request.history.started)
        if request.history.messages and not messages:
            raise EngineFailed("It returned no messages.")
        label = mix([assembled.label, request.history.label])
        return replace(assembled, messages=messages, notes=(*assembled.notes, *notes), label=label)

    async def _compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        outcome = await self.primary.compact(request)
        if isinstance(outcome, CompactionRefused):
            return outcome
        entry = replace(outcome.entry, label=mix([outcome.entry.label, request.history.label]))
        at = next((at for at, known in enumerate(request.entries) if known.id == entry.first_kept), None)
        if at is None and entry.first_kept is not None:
            raise EngineFailed("It kept an entry that does not exist.")
        kept = () if at is None else request.entries[at:]
        tokens_after = replace(request, entries=kept, previous=entry).tokens
        if tokens_after >= request.tokens:
            raise EngineFailed("Its compaction did not make the history shorter.")
        return Compaction(entry, tokens_after)

    async def _attempt(self, step: str, work: Callable[[], Awaitable[R]], seconds: float) -> R | None:
        try:
            with anyio.fail_after(seconds):
                return await work()
        except Exception as error:  # border: an engine is foreign code
            log.exception("The context engine failed in %s.", step)
            reason = "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        await self.on_failure(
            f"The context engine failed in `{step}` ({reason}); the default engine is used instead. "
            "Clear plugins.slots.contextEngine to stop using it."
        )
        return None
