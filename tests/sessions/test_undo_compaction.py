"""Undoing a compaction: the model reads the original words again, and no byte of the file changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.errors import SessionError
from retinue.core.messages import ToolCall, Usage
from retinue.sessions.entries import Compacted, EntryId, MessageAdded, ModelChanged, Noted, TranscriptEntry, Unknown
from retinue.sessions.index import SummaryLog, summarise_transcript
from retinue.sessions.transcript import Transcript
from retinue.sessions.undo_compaction import RESTORED, plan_undo, undo_compactions
from tests.examples import examples
from tests.sessions.builders import answer, result, stamps, start, texts, user

NOW = datetime(2026, 2, 5, 12, tzinfo=UTC)


def reopen(transcript: Transcript) -> Transcript:
    return Transcript.open(transcript.path, stamps("x"))


def talk(transcript: Transcript, *lines: str) -> list[TranscriptEntry]:
    return [transcript.append(user(line) if at % 2 == 0 else answer(line)) for at, line in enumerate(lines)]


def test_the_original_messages_are_read_again(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    said = talk(transcript, "one", "two", "three", "four")
    before = transcript.messages
    transcript.append(Compacted("S", said[2].id, 100))
    bytes_before = transcript.path.read_bytes()
    restored = undo_compactions(transcript, NOW)
    assert (restored.undone, restored.carried, restored.messages_before, restored.messages_after) == (1, 0, 2, 4)
    for view in (transcript, reopen(transcript)):
        assert view.messages == before
        assert view.tree.summary is None
    assert transcript.path.read_bytes().startswith(bytes_before)


def test_what_was_said_since_is_not_lost_and_not_counted_twice(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    said = talk(transcript, "one", "two", "three", "four")
    transcript.append(Compacted("S", said[2].id, 100))
    transcript.append(Noted("a note", {"n": 1}))
    transcript.append(user("five"))
    transcript.append(answer("", ToolCall("c1", "ls", {}), usage=Usage(1000, 10, cost=0.5)))
    spoken_at = transcript.append(result("c1", "six")).timestamp
    known = summarise_transcript(transcript.path, None, SummaryLog())
    restored = undo_compactions(transcript, NOW)
    assert restored.carried == 4
    view = reopen(transcript)
    assert texts(view) == ["one", "two", "three", "four", "five", "", "six"]
    assert view.tree.kept[-1].timestamp == spoken_at
    now = summarise_transcript(transcript.path, None, SummaryLog())
    assert known is not None
    assert now is not None
    assert now.usage == known.usage


def test_compactions_are_undone_one_by_one_or_together(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    first = talk(transcript, "one", "two", "three", "four")
    transcript.append(Compacted("S1", first[2].id, 100))
    second = talk(transcript, "five", "six")
    transcript.append(Compacted("S2", second[1].id, 90))
    talk(transcript, "seven")
    both = start(tmp_path, "s2", "b")
    both.path.write_bytes(transcript.path.read_bytes())
    undo_compactions(transcript, NOW)
    view = reopen(transcript)
    assert (view.tree.summary and view.tree.summary.summary) == "S1"
    assert texts(view) == ["three", "four", "five", "six", "seven"]
    undo_compactions(transcript, NOW)
    undo_compactions(both, NOW, 2)
    for each in (transcript, both):
        assert texts(reopen(each)) == ["one", "two", "three", "four", "five", "six", "seven"]
        assert reopen(each).tree.summary is None
    with pytest.raises(SessionError, match="no compaction to undo"):
        undo_compactions(transcript, NOW)


def test_a_restored_session_can_be_compacted_and_restored_again(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    said = talk(transcript, "one", "two", "three")
    transcript.append(Compacted("bad", said[2].id, 100))
    undo_compactions(transcript, NOW)
    transcript.append(Compacted("better", transcript.tree.kept[-1].id, 100))
    assert texts(reopen(transcript)) == ["three"]
    undo_compactions(transcript, NOW)
    assert texts(reopen(transcript)) == ["one", "two", "three"]


def test_it_is_refused_with_a_reason(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    talk(transcript, "one")
    before = transcript.path.read_bytes()
    with pytest.raises(SessionError, match="no compaction to undo"):
        undo_compactions(transcript, NOW)
    transcript.append(Compacted("S", None, 1))
    with pytest.raises(SessionError, match="only 1 compactions to undo, not 2"):
        undo_compactions(transcript, NOW, 2)
    assert RESTORED not in transcript.path.read_text()
    assert transcript.path.read_bytes().startswith(before)
    alone = start(tmp_path, "s2")
    alone.append(Compacted("S", None, 1))
    with pytest.raises(SessionError, match="is the first entry"):
        undo_compactions(alone, NOW)


def test_choices_made_since_are_carried_and_foreign_lines_stay_behind() -> None:
    def entry(name: str, body: ModelChanged | Compacted | Unknown | MessageAdded) -> TranscriptEntry:
        return TranscriptEntry(EntryId(name), None, NOW, body)

    chosen = entry("d", ModelChanged(None))
    plan = plan_undo(
        [entry("a", user("hi")), entry("b", Compacted("S", None, 1)), entry("c", Unknown({"id": "c"})), chosen], 1
    )
    assert (plan.onto, plan.carried, plan.undone) == ("a", (chosen,), ("b",))


def test_a_transcript_that_was_read_from_its_end_is_restored_whole(tmp_path: Path) -> None:
    writer = start(tmp_path)
    long = "word " * 20_000
    for number in range(12):
        last = writer.append(user(f"{number} {long}"))
    writer.append(Compacted("S", last.id, 1))
    writer.append(user("after"))
    transcript = reopen(writer)
    assert transcript.bytes_read < writer.path.stat().st_size
    restored = undo_compactions(transcript, NOW)
    assert restored.messages_after == 13
    assert [text.split()[0] for text in texts(transcript)] == [*map(str, range(12)), "after"]


STEP = st.sampled_from(["say", "answer", "compact all", "compact some", "note"])


@given(st.lists(STEP, min_size=1, max_size=12), st.lists(STEP, max_size=6).filter(lambda s: not _compacts(s)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
def test_any_history_comes_back(
    tmp_path_factory: pytest.TempPathFactory, earlier: Sequence[str], later: Sequence[str]
) -> None:
    transcript = start(tmp_path_factory.mktemp("s"))
    transcript.append(user("begin"))
    _act(transcript, earlier)
    before, summary = texts(transcript), transcript.tree.summary
    transcript.append(Compacted("last", transcript.tree.leaf, 1))
    count = len(transcript.tree.kept)
    _act(transcript, later)
    since = texts(transcript)[count:]
    undo_compactions(transcript, NOW)
    view = reopen(transcript)
    assert texts(view) == before + since
    assert view.tree.summary == summary


def _compacts(steps: Sequence[str]) -> bool:
    return any(step.startswith("compact") for step in steps)


def _act(transcript: Transcript, steps: Sequence[str]) -> None:
    for number, step in enumerate(steps):
        match step:
            case "say":
                transcript.append(user(f"said {number}"))
            case "answer":
                transcript.append(answer(f"answered {number}", usage=Usage(5, 5)))
            case "compact all":
                transcript.append(Compacted(f"S{number}", None, 1))
            case "compact some":
                kept = transcript.tree.kept
                transcript.append(Compacted(f"S{number}", kept[len(kept) // 2].id if kept else None, 1))
            case _:
                transcript.append(Noted("n"))
