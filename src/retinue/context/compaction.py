"""Compaction decisions: when a history is too long, where it is cut, and which rules are repeated afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate

from msgspec import Struct

from retinue.context.measure import estimate, tokens_of
from retinue.context.settings import DEFAULT_SECTIONS, CompactionSettings
from retinue.core.envelope import Source
from retinue.core.labels import Label, mix
from retinue.core.messages import AssistantMessage, Message, Text, ToolResult, UserMessage, label_of
from retinue.core.text import estimate_tokens, fence_after, read_heading
from retinue.sessions.entries import Compacted, EntryId, MessageAdded, TranscriptEntry
from retinue.settings import size_in_bytes

Summarise = Callable[[str, str], Awaitable[str]]
"""Calls a model with a system prompt and a user message; returns its text; raises `ModelError` on failure."""


class RefusalReason(StrEnum):
    """Why there is no summary."""

    NOTHING = "nothing"
    MODEL = "model"
    TIMEOUT = "timeout"
    AUDIT = "audit"


class CompactionRefused(Struct, frozen=True):
    """The history was not compacted. `reason` is a message for the user; `problems` are those of the summary."""

    reason: str
    because: RefusalReason
    problems: tuple[str, ...] = ()


class SummaryLimits(Struct, frozen=True):
    """The limits of a summary: the window of the model that writes it, and its maximum size."""

    window: int
    most_tokens: int


_MAX_SUMMARY_TOKENS = 4_000
_MAX_RESERVE_SHARE = 0.5
_SHARE = 4
_RETRY_SHARE = 10
_MAX_DOUBLINGS = 6


class FlushState(Struct, frozen=True):
    """When notes of a session were last written, and the growth of its transcript since.

    `flushed_in` is the number of compactions before the last flush, None if there was none. `transcript_bytes` is the
    growth of the transcript since the last compaction.
    """

    compactions: int
    flushed_in: int | None = None
    transcript_bytes: int = 0


def answer_reserve(window: int, settings: CompactionSettings) -> int:
    """Return the tokens of the window reserved for the answer; at most half of the window."""
    return min(max(settings.reserve_tokens, settings.reserve_tokens_floor), int(window * _MAX_RESERVE_SHARE))


def room_for_history(window: int, settings: CompactionSettings) -> int:
    """Return the maximum tokens of prompt and history together before a compaction is due."""
    return window - answer_reserve(window, settings)


def tokens_to_keep(window: int, settings: CompactionSettings) -> int:
    """Return the tokens of recent history that are kept; in a small window a share of the room."""
    return min(settings.keep_recent_tokens, int(room_for_history(window, settings) * settings.max_history_share))


def summary_limits(window: int, settings: CompactionSettings) -> SummaryLimits:
    """Return the limits of a summary for a model with this window."""
    return SummaryLimits(window, min(_MAX_SUMMARY_TOKENS, room_for_history(window, settings) // _SHARE))


def should_compact(used: int, window: int, settings: CompactionSettings, *, transcript_bytes: int = 0) -> bool:
    """Return whether a history of `used` tokens, including the prompt, must be compacted before the next call.

    `transcript_bytes` is the growth of the transcript since the last compaction.
    """
    if not settings.enabled:
        return False
    return used > room_for_history(window, settings) or _reaches(transcript_bytes, settings.max_active_transcript_bytes)


class FailedSummaries(Struct, frozen=True):
    """How many summaries failed since the last compaction, and the tokens of the request at the last failure."""

    count: int = 0
    tokens: int = 0


def should_retry_summary(used: int, window: int, settings: CompactionSettings, failed: FailedSummaries) -> bool:
    """Return whether a summary is due again: a model that failed is asked after the history has grown further.

    Otherwise each turn of a session that is too long would pay for several failing calls. The growth doubles with each
    failure.
    """
    if not failed.count:
        return True
    step = room_for_history(window, settings) // _RETRY_SHARE
    doublings = min(failed.count, _MAX_DOUBLINGS) - 1
    return used >= failed.tokens + (step << doublings)


def should_flush(used: int, window: int, settings: CompactionSettings, state: FlushState) -> bool:
    """Return whether notes should be written, because a compaction is near; once between two compactions."""
    flush = settings.memory_flush
    if not (settings.enabled and flush.enabled) or state.flushed_in == state.compactions:
        return False
    room = room_for_history(window, settings)
    soon = used >= room - min(flush.soft_threshold_tokens, room // _SHARE)
    return soon or _reaches(state.transcript_bytes, flush.force_flush_transcript_bytes)


def _reaches(size: int, limit: int | str | None) -> bool:
    return limit is not None and 0 < size_in_bytes(limit) <= size


MIN_WORTH = 500
"""Fewer tokens than this are not summarised, because the summary would hardly be shorter."""

_INTRODUCTION = (
    "The beginning of this conversation was summarised to save space. The summary is a record of what happened, not a "
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
    def label(self) -> Label:
        """The label of a text made from the older part."""
        before = [self.previous.label] if self.previous else []
        return mix([*before, *label_of.of_all(self.head)])


def summary_message(compacted: Compacted) -> UserMessage:
    """Return a summary as the model reads it, before the kept messages."""
    return UserMessage((Text(_INTRODUCTION + compacted.summary),), label=compacted.label)


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


def newest_within(messages: Sequence[Message], room: int) -> tuple[Message, ...]:
    """Return the newest messages of at most `room` tokens, cut where a history may be cut.

    At least the messages after the last such position are returned. They start with a user message if there is one.
    """
    cuts = safe_cuts(messages)
    after = list(accumulate(map(tokens_of, reversed(messages))))[::-1]
    if not cuts or after[0] <= room:
        return tuple(messages)
    within = [at for at in cuts if after[at] <= room] or [cuts[-1]]
    return tuple(messages[next((at for at in within if isinstance(messages[at], UserMessage)), within[0]) :])


MAX_CHARS = 1_800

_CUT = "\n[… shortened; the rest is in AGENTS.md]"


def agents_sections(text: str, headings: Sequence[str] = DEFAULT_SECTIONS, max_chars: int = MAX_CHARS) -> str:
    """Return the chosen sections of AGENTS.md in the given order; "" if it has none of them.

    A section ends at the next heading of the same or a higher level. Headings are compared case-insensitively.
    """
    wanted = [_normalise(heading) for heading in dict.fromkeys(headings)]
    found = {name: section for name, section in reversed(list(_sections(text))) if name in wanted}
    whole = "\n\n".join(found[name] for name in wanted if name in found)
    if len(whole) <= max_chars:
        return whole
    keep = max_chars - len(_CUT)
    if keep <= 0:
        return ""
    line_end = whole.rfind("\n", 0, keep + 1)
    return whole[: line_end if line_end > 0 else keep].rstrip() + _CUT


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield each heading and its section, including subsections; lines in code blocks are not headings."""
    lines = text.splitlines()
    heads = list(_headings(lines))
    for index, (at, level, name) in enumerate(heads):
        end = next((later for later, deep, _ in heads[index + 1 :] if deep <= level), len(lines))
        yield name, "\n".join(lines[at:end]).strip()


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    fence = ""
    for at, line in enumerate(lines):
        fence = fence_after(line, fence)
        if not fence and (heading := read_heading(line)):
            yield at, heading[0], _normalise(heading[1])


def _normalise(heading: str) -> str:
    return " ".join(heading.strip("# \t").casefold().split())
