"""Cut points: where a history is split into an older part to summarise and a newer part that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from retinue.context.measure import estimate, tokens_of
from retinue.core.envelope import Source
from retinue.core.messages import AssistantMessage, Message, Text, ToolResult, UserMessage
from retinue.core.tokens import estimate_tokens
from retinue.core.trust import Trust, least
from retinue.sessions.entries import Compacted, EntryId, MessageAdded, TranscriptEntry

MIN_WORTH = 500
"""Fewer tokens than this are not summarised, because the summary would hardly be shorter."""

_INTRODUCTION = (
    "The beginning of this conversation was summed up to save room. The summary is a record of what happened, not a "
    "new request; the conversation goes on after it.\n\n"
)


class CutPlan(Struct, frozen=True):
    """The messages that a compaction replaces, and those it keeps.

    `previous` is the current summary at the start of the history. `asks` are the messages of people in the older part.
    `inside_turn` says that the kept part starts in the middle of a turn.
    """

    head: tuple[Message, ...]
    kept: tuple[Message, ...]
    first_kept: EntryId
    asks: tuple[str, ...]
    inside_turn: bool
    previous: Compacted | None = None

    @property
    def tokens_replaced(self) -> int:
        """The tokens of the older part, including the previous summary."""
        before = estimate([summary_message(self.previous)]) if self.previous else 0
        return before + estimate(self.head)

    @property
    def tokens_before(self) -> int:
        return self.tokens_replaced + estimate(self.kept)

    @property
    def trust(self) -> Trust:
        """The trust of a text made from the older part."""
        before = [self.previous.trust] if self.previous else []
        return least([*before, *map(trust_of, self.head)])


def trust_of(message: Message) -> Trust:
    """Return the trust of a message; an answer is the agent's own."""
    return Trust.AGENT if isinstance(message, AssistantMessage) else message.trust


def summary_message(compacted: Compacted) -> UserMessage:
    """Return a summary as the model reads it, before the kept messages."""
    return UserMessage((Text(_INTRODUCTION + compacted.summary),), trust=compacted.trust)


def plan_cut(
    entries: Sequence[TranscriptEntry], keep_recent_tokens: int, *, previous: Compacted | None = None
) -> CutPlan | None:
    """Plan a cut that keeps at most about `keep_recent_tokens`; return None if it is not worth a summary.

    `entries` are those of the messages that the model reads (`TranscriptTree.kept`), `previous` is the summary before
    them (`TranscriptTree.summary`). A tool call is never separated from its results. The cut is between two turns if
    that keeps at least half of the allowance, otherwise inside a turn. The last answer and its results are always kept.
    """
    spoken = [(entry.id, entry.body) for entry in entries if isinstance(entry.body, MessageAdded)]
    messages = tuple(body.message for _, body in spoken)
    at = _choose(messages, keep_recent_tokens)
    if at is None:
        return None
    head, kept = messages[:at], messages[at:]
    heard = [body for _, body in spoken[:at] if isinstance(body.message, UserMessage)]
    people = [body for body in heard if body.source is Source.CHAT] or heard
    plan = CutPlan(
        head=head,
        kept=kept,
        first_kept=spoken[at][0],
        asks=tuple(text for body in people if (text := body.message.text.strip())),
        inside_turn=not isinstance(kept[0], UserMessage),
        previous=previous,
    )
    before = estimate_tokens(previous.summary) if previous else 0
    return plan if before + estimate(head) >= MIN_WORTH else None


def safe_cuts(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the positions where a history may be cut: never between a call and its results."""
    held_until = _last_results(messages)
    cuts = []
    reach = -1
    for at, message in enumerate(messages):
        if at > reach and at > 0 and not isinstance(message, ToolResult):
            cuts.append(at)
        reach = max(reach, held_until[at])
    return tuple(cuts)


def _last_results(messages: Sequence[Message]) -> list[int]:
    """Return for each message the position of the last result of its calls, or its own position.

    The calls of the last answer may still be running: if one has no result, nothing after it may be cut off.
    """
    until = list(range(len(messages)))
    asked: dict[str, int] = {}
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            asked |= dict.fromkeys((call.id for call in message.calls), at)
        elif isinstance(message, ToolResult) and message.call_id in asked:
            until[asked[message.call_id]] = at
    last = max((at for at, message in enumerate(messages) if isinstance(message, AssistantMessage)), default=None)
    if last is not None:
        answered = {message.call_id for message in messages[last:] if isinstance(message, ToolResult)}
        answer = messages[last]
        assert isinstance(answer, AssistantMessage)
        if any(call.id not in answered for call in answer.calls):
            until[last] = len(messages) - 1
    return until


def _choose(messages: Sequence[Message], keep: int) -> int | None:
    cuts = safe_cuts(messages)
    if not cuts:
        return None
    # after[i]: tokens from message i to the end
    after = list(accumulate(map(tokens_of, reversed(messages))))[::-1]
    if after[0] <= keep:
        return None
    within = [at for at in cuts if after[at] <= keep]
    if not within:
        return cuts[-1]
    turns = [at for at in within if isinstance(messages[at], UserMessage)]
    if turns and after[turns[0]] * 2 >= keep:
        return turns[0]
    return within[0]
