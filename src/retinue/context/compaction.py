"""When a history is too long: decisions about its size, over values."""

from __future__ import annotations

from msgspec import Struct

from retinue.context.settings import CompactionSettings
from retinue.context.summary import SummaryLimits
from retinue.settings import size_in_bytes

_LONGEST_SUMMARY_TOKENS = 4_000
_LARGEST_RESERVE = 0.5
_SHARE = 4


class FlushState(Struct, frozen=True):
    """What is known of a session's notes: in which cycle they were last written, and what was said since.

    A cycle is counted by the compactions before it; `flushed_in` is None where notes were never written.
    `transcript_bytes` is what the transcript grew by since the last compaction.
    """

    compactions: int
    flushed_in: int | None = None
    transcript_bytes: int = 0


def reserve_of(window: int, settings: CompactionSettings) -> int:
    """Tokens of the window that stay free for the answer; at most half of a small window."""
    return min(max(settings.reserve_tokens, settings.reserve_tokens_floor), int(window * _LARGEST_RESERVE))


def room_for_history(window: int, settings: CompactionSettings) -> int:
    """Tokens that prompt and history may take together before a compaction is due."""
    return window - reserve_of(window, settings)


def keep_of(window: int, settings: CompactionSettings) -> int:
    """Tokens of recent history that stay as they are; in a small window a share of what there is."""
    return min(settings.keep_recent_tokens, int(room_for_history(window, settings) * settings.max_history_share))


def limits_of(window: int, settings: CompactionSettings) -> SummaryLimits:
    """What a summary may take, for a model with this window."""
    return SummaryLimits(window, min(_LONGEST_SUMMARY_TOKENS, room_for_history(window, settings) // _SHARE))


def should_compact(used: int, window: int, settings: CompactionSettings, *, transcript_bytes: int = 0) -> bool:
    """Whether history of `used` tokens, prompt included, must be summed up before the next call.

    `transcript_bytes` is what the transcript grew by since the last compaction.
    """
    if not settings.enabled:
        return False
    return used > room_for_history(window, settings) or _reaches(transcript_bytes, settings.max_active_transcript_bytes)


def should_flush(used: int, window: int, settings: CompactionSettings, state: FlushState) -> bool:
    """Whether notes should be written now, because a compaction is near; once between two compactions."""
    flush = settings.memory_flush
    if not (settings.enabled and flush.enabled) or state.flushed_in == state.compactions:
        return False
    room = room_for_history(window, settings)
    soon = used >= room - min(flush.soft_threshold_tokens, room // _SHARE)
    return soon or _reaches(state.transcript_bytes, flush.force_flush_transcript_bytes)


def _reaches(size: int, limit: int | str | None) -> bool:
    return limit is not None and 0 < size_in_bytes(limit) <= size
