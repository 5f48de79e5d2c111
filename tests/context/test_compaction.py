"""When a history is too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.context.compaction import (
    FailedSummaries,
    FlushState,
    answer_reserve,
    room_for_history,
    should_compact,
    should_flush,
    should_retry_summary,
    summary_limits,
    tokens_to_keep,
)
from retinue.context.settings import CompactionSettings, MemoryFlush
from retinue.settings import size_in_bytes
from retinue.structs.decode import DecodeError, decode

SETTINGS = CompactionSettings()
FRESH = FlushState(compactions=0)


def test_twenty_thousand_tokens_stay_free() -> None:
    assert answer_reserve(200_000, SETTINGS) == 20_000
    assert answer_reserve(200_000, replace(SETTINGS, reserve_tokens=30_000)) == 30_000
    assert not should_compact(180_000, 200_000, SETTINGS)
    assert should_compact(180_001, 200_000, SETTINGS)
    assert tokens_to_keep(200_000, SETTINGS) == 20_000


def test_notes_are_written_four_thousand_tokens_before_that() -> None:
    assert not should_flush(175_999, 200_000, SETTINGS, FRESH)
    assert should_flush(176_000, 200_000, SETTINGS, FRESH)


def test_notes_are_written_once_between_two_compactions() -> None:
    assert not should_flush(190_000, 200_000, SETTINGS, FlushState(compactions=2, flushed_in=2))
    assert should_flush(190_000, 200_000, SETTINGS, FlushState(compactions=3, flushed_in=2))


def test_much_text_forces_notes_and_compaction() -> None:
    assert should_flush(0, 200_000, SETTINGS, FlushState(0, transcript_bytes=2 * 1024**2))
    assert not should_flush(0, 200_000, SETTINGS, FlushState(0, transcript_bytes=2 * 1024**2 - 1))
    never = replace(SETTINGS, memory_flush=MemoryFlush(force_flush_transcript_bytes=None))
    assert not should_flush(0, 200_000, never, FlushState(0, transcript_bytes=10**9))
    bounded = replace(SETTINGS, max_active_transcript_bytes="1kb")
    assert should_compact(0, 200_000, bounded, transcript_bytes=1024)
    assert not should_compact(0, 200_000, bounded, transcript_bytes=1023)
    assert not should_compact(0, 200_000, SETTINGS, transcript_bytes=10**9)


def test_switched_off_means_off() -> None:
    off = replace(SETTINGS, enabled=False)
    assert not should_compact(10**6, 200_000, off)
    assert not should_flush(10**6, 200_000, off, FRESH)
    no_notes = replace(SETTINGS, memory_flush=MemoryFlush(enabled=False))
    assert should_compact(10**6, 200_000, no_notes)
    assert not should_flush(10**6, 200_000, no_notes, FRESH)


@given(st.integers(2_048, 2_000_000))
def test_in_any_window_notes_come_before_compaction_and_what_stays_is_well_below_it(window: int) -> None:
    room = room_for_history(window, SETTINGS)
    assert window // 2 <= room < window
    assert should_flush(room, window, SETTINGS, FRESH)
    assert not should_flush(room // 2, window, SETTINGS, FRESH)
    assert tokens_to_keep(window, SETTINGS) + summary_limits(window, SETTINGS).most_tokens < room


def test_sizes_are_checked_where_they_are_written() -> None:
    assert [size_in_bytes(text) for text in (7, "7", "1kb", "1.5 MB", "2gb")] == [7, 7, 1024, 1_572_864, 2 * 1024**3]
    with pytest.raises(DecodeError, match="expected a size"):
        decode(MemoryFlush, {"forceFlushTranscriptBytes": "much"})
    with pytest.raises(DecodeError, match="expected a size"):
        decode(CompactionSettings, {"maxActiveTranscriptBytes": "2 tons"})


def test_after_a_failed_summary_the_history_must_grow_more_each_time() -> None:
    def retried(used: int, failures: int) -> bool:
        return should_retry_summary(used, 200_000, SETTINGS, FailedSummaries(failures, 180_001))

    assert should_retry_summary(180_001, 200_000, SETTINGS, FailedSummaries())
    assert not retried(198_000, 1)
    assert retried(198_001, 1)
    assert not retried(198_001, 2)
    assert retried(216_001, 2)
    assert retried(180_001 + 18_000 * 32, 60), "it is tried again however often it failed"
