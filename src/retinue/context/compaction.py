"""Compaction decisions: when a history is too long, and how much of it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from retinue.context.settings import CompactionSettings
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
