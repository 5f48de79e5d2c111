"""The context engine: decides what of a session's history the model reads. The default one, and its Protocol."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from retinue.context.compaction import keep_of, limits_of
from retinue.context.cutpoints import plan_cut, summary_message, trust_of
from retinue.context.history import NO_MARKS, Marks, prune
from retinue.context.measure import estimate
from retinue.context.refusal import Refusal, Refused, Summarise
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.core.envelope import Source
from retinue.core.keys import SessionKey
from retinue.core.messages import Message
from retinue.core.trust import Trust, least
from retinue.security.redaction import Redact, Redactor
from retinue.sessions.entries import Compacted, Entry, MessageAdded
from retinue.sessions.repair import repair

NOTHING_TO_COMPACT = Refused("There is nothing to sum up yet; the history was kept.", Refusal.NOTHING)

_SESSIONS_REMEMBERED = 256
_FORCED_SHARE = 3
_KNOWN_KEYS = Redactor()


class History(Struct, frozen=True):
    """What a transcript says was said: the last summary and the messages after it.

    `started` are the tool calls known to have been about to take effect, None where nobody knows.
    """

    messages: tuple[Message, ...]
    summary: Compacted | None = None
    started: frozenset[str] | None = None

    @property
    def trust(self) -> Trust:
        """How far a request made from this history may be believed."""
        before = [self.summary.trust] if self.summary else []
        return least([*before, *map(trust_of, self.messages)])


class AssembleRequest(Struct, frozen=True):
    """What is to be made ready for a model call.

    `overhead` are the tokens of the system prompt and the tools; `last_cache_touch` is when the session last called a
    model.
    """

    session: SessionKey
    history: History
    window: int
    now: datetime
    last_cache_touch: datetime | None = None
    overhead: int = 0


class Assembled(Struct, frozen=True):
    """The messages to send and about how many tokens the whole request is.

    `pruned` says that old tool results were shortened now, `notes` what had to be repaired.
    """

    messages: tuple[Message, ...]
    estimated_tokens: int
    pruned: bool = False
    notes: tuple[str, ...] = ()
    trust: Trust = Trust.OWNER


class CompactRequest(Struct, frozen=True):
    """What is to be summed up: the entries behind what the model reads (`Tree.kept`) and the summary before them.

    `force` sums up even a history that is within its limits: a person asked, or a provider said that it is too long.
    """

    session: SessionKey
    entries: tuple[Entry, ...]
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
        """What the history costs now."""
        return estimate(read_back(self.history))


class Compaction(Struct, frozen=True):
    """An entry to append to the transcript, and what the history costs with it."""

    entry: Compacted
    tokens_after: int


class ContextEngine(Protocol):
    """Decides what of a history a model reads. A plugin may bring its own; transcripts stay the truth."""

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        """A session was opened or started over."""
        ...

    async def assemble(self, request: AssembleRequest) -> Assembled:
        """The messages of the next model call."""
        ...

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        """A message was written to the transcript."""
        ...

    async def compact(self, request: CompactRequest) -> Compaction | Refused:
        """Make the history shorter, or say why it stays as it is."""
        ...


class DefaultEngine:
    """Sends the last summary and all messages after it, each call with its result, old tool results pruned."""

    def __init__(
        self, compaction: CompactionSettings, pruning: ContextPruningSettings, *, redact: Redact = _KNOWN_KEYS
    ) -> None:
        self._compaction = compaction
        self._pruning = pruning
        self._redact = redact
        self._marks: OrderedDict[SessionKey, Marks] = OrderedDict()

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        self._marks.pop(session, None)

    async def assemble(self, request: AssembleRequest) -> Assembled:
        whole, notes = repair(request.history.messages, request.history.started)
        pruned = prune(
            read_back(History(whole, request.history.summary)),
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
        """The transcript already has it."""

    async def compact(self, request: CompactRequest) -> Compaction | Refused:
        keep = keep_of(request.window, self._compaction)
        if request.force:
            keep = min(keep, request.tokens // _FORCED_SHARE)
        # Most processes never sum anything up, and need none of what that takes.
        from retinue.context.summary import summarise

        plan = plan_cut(request.entries, keep, previous=request.previous)
        if plan is None:
            return NOTHING_TO_COMPACT
        limits = limits_of(request.window, self._compaction)
        summary = await summarise(plan, request.ask, self._compaction, limits, focus=request.focus, redact=self._redact)
        if isinstance(summary, Refused):
            return summary
        entry = summary.as_compacted(plan)
        return Compaction(entry, estimate(read_back(History(plan.kept, entry))))

    def _remember(self, session: SessionKey, marks: Marks) -> None:
        self._marks[session] = marks
        self._marks.move_to_end(session)
        if len(self._marks) > _SESSIONS_REMEMBERED:
            self._marks.popitem(last=False)


def read_back(history: History) -> tuple[Message, ...]:
    """A history as a model reads it: the summary first."""
    return (*([summary_message(history.summary)] if history.summary else []), *history.messages)
