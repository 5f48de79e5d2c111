"""All sessions of an agent, and an index that may be lost at any time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.keys import SessionId, SessionKey
from retinue.core.messages import Usage
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions import store as store_module
from retinue.sessions.entries import (
    FLUSHED,
    Body,
    Compacted,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
)
from retinue.sessions.session import Session
from retinue.sessions.store import SessionStore
from retinue.sessions.usage import group_usage, sum_usage
from tests.examples import examples
from tests.sessions.builders import BODIES, MAIN, TickingClock, answer, counting, texts, user

IDEAS = SessionKey.parse("ideas")
ROOT = Path(__file__).parents[2]
GROUP = SessionKey.parse("agent:main:telegram:group:-100")


def make_store(folder: Path, prefix: str = "", start: datetime | None = None) -> SessionStore:
    return SessionStore(
        folder / "sessions",
        TickingClock(start) if start else TickingClock(),
        ids=counting(f"{prefix}e").__next__,
        session_ids=counting(f"{prefix}s").__next__,
        cwd="/home/ada",
    )


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return make_store(tmp_path)


def fill(store: SessionStore) -> None:
    """Two sessions with a turn each, and one that was reset."""
    for key in (MAIN, IDEAS):
        transcript = store.open(key)
        transcript.append(user("Hello"))
        transcript.append(answer("Hi", usage=Usage(10, 5, 2, 1, 0.125)))
        store.find(key)
    store.reset(IDEAS)


def index_of(store: SessionStore) -> bytes:
    return (store.folder / "sessions.json").read_bytes()


def test_another_process_finds_it_too(store: SessionStore, tmp_path: Path) -> None:
    store.open(MAIN).append(user("Hello"))
    other = make_store(tmp_path, "o")
    other.open(MAIN).append(user("from the other"))
    assert texts(store.open(MAIN)) == ["Hello", "from the other"]
    assert other.list() == store.list()


def test_everything_is_private(store: SessionStore) -> None:
    fill(store)
    paths = [store.folder, *store.folder.rglob("*")]
    assert len(paths) > 5
    for path in paths:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def test_a_session_is_what_its_transcript_adds_up_to(store: SessionStore) -> None:
    transcript = store.open(GROUP)
    transcript.append(user("Hello"))
    spoken = transcript.append(answer("Hi", usage=Usage(10, 5, 2, 1, 0.125)))
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    transcript.append(ThinkingChanged(ReasoningEffort.HIGH))
    transcript.append(SettingChanged("label", "Family"))
    transcript.append(SettingChanged("verbose", "on"))
    transcript.append(SettingChanged("verbose", None))
    flushed = transcript.append(Noted(FLUSHED, {"compactions": 0}))
    transcript.append(Compacted("S", spoken.id, 9))
    transcript.append(user("tick", Source.HEARTBEAT))
    last = transcript.append(answer("ok", usage=Usage(1, 1, 0, 0, 0.5)))
    found = store.find(GROUP)
    assert found is not None
    assert transcript.header is not None
    assert found == Session(
        key=GROUP,
        id=SessionId("s1"),
        started_at=transcript.header.timestamp,
        updated_at=last.timestamp,
        last_interaction_at=transcript.tree.path[0].timestamp,
        model=ModelRef("openai", "gpt-5"),
        thinking=ReasoningEffort.HIGH,
        settings=(("label", "Family"),),
        usage=Usage(11, 6, 2, 1, 0.625),
        context_tokens=2,
        messages=4,
        compactions=1,
        flushed_at=flushed.timestamp,
        flushed_in=0,
        size=transcript.path.stat().st_size,
    )
    assert (found.label, found.verbose, found.reasoning, found.chat_type) == ("Family", None, None, "group")


def test_the_index_holds_the_last_memory_flush_under_the_names_of_openclaw(store: SessionStore, tmp_path: Path) -> None:
    flushed = store.open(MAIN).append(Noted(FLUSHED, {"compactions": 3}))
    found = store.find(MAIN)
    (row,) = json.loads(index_of(store)).values()
    assert row["memoryFlushAt"] == flushed.timestamp.timestamp() * 1000
    assert row["memoryFlushCompactionCount"] == 3
    assert {"compactionCount", "inputTokens", "outputTokens", "totalTokens", "contextTokens"} <= set(row)
    assert make_store(tmp_path, "o").find(MAIN) == found


def test_a_warm_session_is_not_read_again(store: SessionStore) -> None:
    for number in range(20):
        store.open(MAIN).append(user(f"message {number}"))
        store.find(MAIN)
    assert store.open(MAIN).bytes_read == 0


@pytest.mark.slow
def test_sessions_that_take_turns_are_not_read_again(store: SessionStore) -> None:
    keys = [SessionKey.parse(f"agent:main:s{number}") for number in range(100)]
    before = [store.open(key) for key in keys]
    assert [store.open(key) for key in keys] == before


def test_few_transcripts_stay_open_if_they_are_long(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_MAX_OPEN_ENTRIES", 40)
    keys = [SessionKey.parse(f"agent:main:s{number}") for number in range(40)]
    before = []
    for key in keys:
        before.append(store.open(key))
        before[-1].append(user("hello"))
        before[-1].append(user("again"))
    assert store.open(keys[-1]) is before[-1]
    assert store.open(keys[0]) is not before[0]


def test_reset_archives_and_starts_over_with_the_choices_made(store: SessionStore) -> None:
    transcript = store.open(MAIN)
    transcript.append(user("secret plan"))
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    transcript.append(ThinkingChanged(ReasoningEffort.LOW))
    transcript.append(SettingChanged("verbose", "on"))
    transcript.append(SettingChanged("label", "Plan"))
    before = transcript.path.read_bytes()
    fresh = store.reset(MAIN)
    assert texts(store.open(MAIN)) == []
    assert (fresh.model, fresh.thinking, fresh.verbose, fresh.label) == (
        ModelRef("openai", "gpt-5"),
        ReasoningEffort.LOW,
        "on",
        None,
    )
    assert fresh.parent == "s1"
    [archive] = store.folder.glob("s1.jsonl.reset.2026-02-03T10-00-*Z")
    assert archive.read_bytes() == before
    assert not transcript.path.exists()
    assert [session.id for session in store.list()] == [fresh.id]


def test_reset_of_a_new_key_just_starts_it(store: SessionStore) -> None:
    assert store.reset(MAIN).parent is None
    assert list(store.folder.glob("*.reset.*")) == []


def lose(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def break_row(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"size"', b'"sise"'))


def point_elsewhere(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"sessionId": "s1"', b'"sessionId": "../x"'))


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


DAMAGES = [spoil, fill_with_zeros, empty, make_folder, break_row, point_elsewhere, link]


@pytest.mark.parametrize("damage", [lose, *DAMAGES])
def test_a_damaged_index_comes_back_equal(store: SessionStore, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    fill(store)
    before, listed = index_of(store), store.list()
    damage(store.folder / "sessions.json")
    again = make_store(tmp_path, "n")
    assert again.list() == listed
    assert index_of(again) == before
    assert texts(again.open(MAIN)) == ["Hello", "Hi"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_in_a_damaged_index_is_kept(
    store: SessionStore, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    fill(store)
    path = store.folder / "sessions.json"
    damage(path)
    bytes_before = path.read_bytes() if path.is_file() else None
    again = make_store(tmp_path, "n")
    again.list()
    [aside] = again.folder.glob("sessions.json.corrupt.*")
    assert (aside.read_bytes() if aside.is_file() else None) == bytes_before
    assert any("index could not be used" in note and aside.name in note for note in again.notes)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([MAIN, IDEAS, GROUP]), BODIES, st.booleans()), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
def test_any_index_equals_its_rebuilt_self(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[SessionKey, Body, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("s")
    store = make_store(folder)
    for key, body, ends_turn in steps:
        store.open(key).append(body)
        if ends_turn:
            store.find(key)
    listed, usage = store.list(), store.usage()
    if not steps:
        return
    before = index_of(store)
    (store.folder / "sessions.json").unlink()
    again = make_store(folder)
    assert again.list() == listed
    assert index_of(again) == before
    assert sorted(map(repr, again.usage())) == sorted(map(repr, usage))


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([MAIN, IDEAS]), BODIES, st.booleans()), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
def test_a_session_in_use_is_known_as_whoever_reads_its_file_knows_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[SessionKey, Body, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("s")
    store, other = make_store(folder), make_store(folder, "o")
    for key, body, by_another in steps:
        (other if by_another else store).open(key).append(body)
        assert store.peek(key) == make_store(folder, "n").peek(key)


def test_a_turn_that_never_ended_is_counted_by_the_next_process(store: SessionStore, tmp_path: Path) -> None:
    transcript = store.open(MAIN)
    store.find(MAIN)
    transcript.append(user("Hello"))
    transcript.append(answer("Hi", usage=Usage(10, 5)))
    again = make_store(tmp_path, "n")
    found = again.find(MAIN)
    assert found is not None
    assert (found.messages, found.usage) == (2, Usage(10, 5))
    assert sum_usage(again.usage()) == Usage(10, 5)


def test_a_session_that_never_reached_the_index_is_found(store: SessionStore, tmp_path: Path) -> None:
    store.open(IDEAS)
    before = index_of(store)
    store.open(MAIN).append(user("Hello"))
    (store.folder / "sessions.json").write_bytes(before)
    assert texts(make_store(tmp_path, "n").open(MAIN)) == ["Hello"]


def test_a_session_that_never_reached_the_index_is_not_begun_again(store: SessionStore, tmp_path: Path) -> None:
    store.open(IDEAS)
    before = index_of(store)
    store.open(MAIN).append(user("Hello"))
    (store.folder / "sessions.json").write_bytes(before)
    again = make_store(tmp_path, "n")
    assert not again.begin(MAIN, [user("imported")])
    assert texts(again.open(MAIN)) == ["Hello"]


def carry_over(there: Path, folder: Path) -> None:
    """What a person does who moves a transcript by hand, and not within the same tick of the clock."""
    transcript = make_store(there, "o").open(MAIN)
    transcript.append(user("carried over by hand"))
    transcript.path.rename(folder / transcript.path.name)
    later = folder.stat().st_mtime_ns + 10**9
    os.utime(folder, ns=(later, later))


def test_a_transcript_that_appears_beside_a_store_in_use_is_found(store: SessionStore, tmp_path: Path) -> None:
    store.open(IDEAS)
    assert store.peek(MAIN) is None
    carry_over(tmp_path / "elsewhere", store.folder)
    assert texts(store.open(MAIN)) == ["carried over by hand"]


def test_a_session_that_another_process_starts_is_found_by_one_that_looked_before(
    store: SessionStore, tmp_path: Path
) -> None:
    store.open(IDEAS)
    for number in range(5):
        key = SessionKey.parse(f"new-{number}")
        assert store.peek(key) is None
        make_store(tmp_path, f"o{number}").open(key).append(user("from the other"))
        assert texts(store.open(key)) == ["from the other"]


def test_a_file_that_is_no_transcript_does_not_hide_one_that_comes_later(store: SessionStore, tmp_path: Path) -> None:
    store.open(IDEAS)
    (store.folder / "stray.jsonl").write_bytes(b"what?\n")
    assert store.find(MAIN) is None
    carry_over(tmp_path / "elsewhere", store.folder)
    assert texts(store.open(MAIN)) == ["carried over by hand"]


def test_turns_that_ended_together_are_settled_together(store: SessionStore) -> None:
    keys = [SessionKey.parse(f"busy-{number}") for number in range(4)]
    for key in keys:
        store.open(key).append(user("Hello"))
        store.settle(key)
    store.settle_all()
    counted = json.loads(index_of(store))
    assert {name: row["messageCount"] for name, row in counted.items()} == {key.text: 1 for key in keys}


def test_a_reset_that_was_cut_short_still_hands_over_the_choices(store: SessionStore, tmp_path: Path) -> None:
    transcript = store.open(MAIN)
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    store.find(MAIN)
    transcript.path.rename(f"{transcript.path}.reset.2026-02-03T10-00-00Z")
    again = make_store(tmp_path, "n")
    assert again.list() == ()
    again.open(MAIN)
    found = again.find(MAIN)
    assert found is not None
    assert (found.model, found.parent) == (ModelRef("openai", "gpt-5"), "s1")


def test_a_transcript_without_a_header_is_left_alone_and_named(store: SessionStore, tmp_path: Path) -> None:
    store.open(MAIN).append(user("Hello"))
    (store.folder / "stray.jsonl").write_bytes(b"what?\n")
    (store.folder / "folder.jsonl").mkdir()
    again = make_store(tmp_path, "n")
    assert [session.key for session in again.list()] == [MAIN]
    assert any("stray.jsonl" in note for note in again.notes)
    assert any("folder.jsonl" in note for note in again.notes)


def test_an_emptied_transcript_costs_only_itself(store: SessionStore, tmp_path: Path) -> None:
    fill(store)
    store.open(MAIN).path.write_bytes(b"")
    again = make_store(tmp_path, "n")
    assert texts(again.open(MAIN)) == []
    assert texts(again.open(IDEAS)) == []
    again.open(MAIN).append(user("new"))
    assert texts(make_store(tmp_path, "m").open(MAIN)) == ["new"]


def test_of_two_transcripts_for_one_key_the_newer_counts(store: SessionStore, tmp_path: Path) -> None:
    store.open(MAIN).append(user("old"))
    later = make_store(tmp_path / "copy", "z", datetime(2026, 3, 1, tzinfo=UTC))
    newer = later.open(MAIN)
    newer.append(user("new"))
    (store.folder / newer.path.name).write_bytes(newer.path.read_bytes())
    (store.folder / "sessions.json").unlink()
    again = make_store(tmp_path, "n")
    assert texts(again.open(MAIN)) == ["new"]
    assert any("the newer is used" in note for note in again.notes)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tests.sessions.builders import MAIN, texts, user
from tests.sessions.test_store import make_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
store = make_store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (345, limits[1]))
store.open(MAIN).append(user("Hello"))
assert store.find(MAIN).messages == 1
print(store.notes)
assert not (store.folder / "sessions.json").exists()
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
assert texts(store.open(MAIN)) == ["Hello"]
assert (store.folder / "sessions.json").exists()
"""


@pytest.mark.slow
def test_an_index_that_cannot_be_written_does_not_stop_a_turn(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "will be rebuilt from the transcripts" in done.stdout


WRITER = """
import sys
from pathlib import Path
from retinue.core.clock import SystemClock
from retinue.core.keys import SessionId, SessionKey
from retinue.core.messages import Usage
from retinue.sessions.store import SessionStore
from tests.sessions.builders import answer, user
store = SessionStore(Path(sys.argv[1]), SystemClock())
for number in range(15):
    for name in ("shared", f"own-{sys.argv[2]}-{number}"):
        key = SessionKey.parse(name)
        transcript = store.open(key)
        transcript.append(user("Hello"))
        transcript.append(answer("Hi", usage=Usage(1, 1)))
        store.find(key)
"""


@pytest.mark.slow
def test_two_processes_keep_one_index(store: SessionStore) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.folder), name], cwd=ROOT) for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    sessions = store.list()
    assert len(sessions) == 31
    assert sum(session.messages for session in sessions) == 2 * 2 * 15 * 2
    assert sum_usage(store.usage()) == Usage(60, 60)
    before = index_of(store)
    (store.folder / "sessions.json").unlink()
    store.list()
    assert index_of(store) == before


def test_usage_is_counted_by_what_it_was_for(store: SessionStore) -> None:
    transcript = store.open(MAIN)
    transcript.append(answer("one", usage=Usage(1, 1, cost=0.5), model="openai/a"))
    transcript.append(answer("two", usage=Usage(2, 2), model="openai/b"))
    transcript.append(answer("free"))
    store.open(IDEAS).append(answer("three", usage=Usage(4, 4), model="openai/a"))
    records = store.usage()
    assert sum_usage(records) == Usage(7, 7, cost=0.5)
    assert group_usage(records, lambda record: record.model) == {
        "openai/a": Usage(5, 5, cost=0.5),
        "openai/b": Usage(2, 2),
    }
    assert group_usage(records, lambda record: record.session) == {
        MAIN.text: Usage(3, 3, cost=0.5),
        IDEAS.text: Usage(4, 4),
    }
    assert group_usage(records, lambda record: record.source) == {Source.CHAT: Usage(7, 7, cost=0.5)}
    assert group_usage(records, lambda record: record.run) == {"r1": Usage(7, 7, cost=0.5)}
    assert group_usage(records, lambda record: record.at.date()) == {records[0].at.date(): Usage(7, 7, cost=0.5)}


def test_usage_of_today_reads_only_this_month(store: SessionStore, tmp_path: Path) -> None:
    store.open(MAIN).append(answer("old", usage=Usage(1, 1)))
    store.find(MAIN)
    (store.folder / "usage" / "2026-01.jsonl").mkdir()
    assert sum_usage(store.usage(datetime(2026, 2, 3, tzinfo=UTC))) == Usage(1, 1)
    assert store.usage(datetime(2026, 2, 4, tzinfo=UTC)) == ()


def test_usage_survives_a_reset_and_the_loss_of_its_folder(store: SessionStore, tmp_path: Path) -> None:
    fill(store)
    before = store.usage()
    assert sum_usage(before) == Usage(20, 10, 4, 2, 0.25)
    for path in (store.folder / "usage").iterdir():
        path.unlink()
    (store.folder / "usage").rmdir()
    assert make_store(tmp_path, "n").usage() == before
    (store.folder / "sessions.json").unlink()
    assert make_store(tmp_path, "n").usage() == before


@pytest.mark.parametrize("what", ["usage", "usage/2026-02.jsonl"])
def test_damaged_usage_is_made_again(store: SessionStore, tmp_path: Path, what: str) -> None:
    fill(store)
    before = store.usage()
    path = store.folder / what
    path.rename(tmp_path / "away")
    if what == "usage":
        path.write_text("not a folder")
    else:
        path.mkdir()
    again = make_store(tmp_path, "n")
    again.open(MAIN).append(answer("more", usage=Usage(1, 1)))
    assert set(again.usage()) > set(before)
    assert len(again.usage()) == len(before) + 1
    assert any("usage" in note and "kept as" in note for note in again.notes)


def test_a_torn_usage_line_costs_only_itself(store: SessionStore) -> None:
    fill(store)
    path = store.folder / "usage" / "2026-02.jsonl"
    with path.open("ab") as file:
        file.write(b'{"at": "2026')
    store.open(MAIN).append(answer("more", usage=Usage(1, 1)))
    assert sum_usage(store.usage()) == Usage(21, 11, 4, 2, 0.25)


def test_a_folder_of_the_owners_choice_may_be_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "sessions").symlink_to(real)
    store = make_store(tmp_path)
    store.open(MAIN).append(user("Hello"))
    assert texts(make_store(tmp_path, "n").open(MAIN)) == ["Hello"]


def start_many(store: SessionStore, count: int) -> list[SessionKey]:
    keys = [SessionKey.parse(f"agent:main:room-{number}") for number in range(count)]
    for key in keys:
        store.begin(key, [user("Hello")])
    return keys


@pytest.mark.slow
def test_starting_a_session_writes_one_row_however_many_there_are(store: SessionStore, tmp_path: Path) -> None:
    start_many(store, 200)
    index, journal = store.folder / "sessions.json", store.folder / "sessions.journal"
    store.list()
    before = index.stat().st_ino, index_of(store), journal.stat().st_size if journal.exists() else 0
    for number in range(10):
        store.begin(SessionKey.parse(f"agent:main:new-{number}"), [user("Hello")])
    assert (index.stat().st_ino, index_of(store)) == before[:2]
    assert 0 < journal.stat().st_size - before[2] < 10 * 1_000
    other = make_store(tmp_path, "o")
    assert other.peek(SessionKey.parse("agent:main:new-7")) == store.peek(SessionKey.parse("agent:main:new-7"))
    assert len(other.list()) == 210


@pytest.mark.slow
def test_a_long_journal_is_folded_into_the_index(store: SessionStore, tmp_path: Path) -> None:
    start_many(store, 400)
    index, journal = store.folder / "sessions.json", store.folder / "sessions.journal"
    assert journal.stat().st_size <= index.stat().st_size // 4
    store.delete(SessionKey.parse("agent:main:room-5"))
    assert not journal.exists()
    assert len(json.loads(index_of(store))) == 399
    assert make_store(tmp_path, "o").list() == store.list()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"{torn", b"", b'{"index": "00000000", "size": 1}\n', b"\0\0\n"])
def test_a_journal_that_cannot_be_used_costs_nothing_but_reading(
    store: SessionStore, tmp_path: Path, damage: bytes
) -> None:
    start_many(store, 150)
    journal = store.folder / "sessions.journal"
    data = journal.read_bytes()
    expected = store.list()
    journal.write_bytes(data[:-20] + damage if damage else b"")
    other = make_store(tmp_path, "o")
    assert other.list() == expected
    other.begin(IDEAS, [user("An idea")])
    assert make_store(tmp_path, "p").list() == other.list()


@pytest.mark.slow
def test_a_journal_of_an_earlier_index_is_ignored(store: SessionStore, tmp_path: Path) -> None:
    """A process may end after it replaced the index and before it removed the journal."""
    keys = start_many(store, 150)
    journal = store.folder / "sessions.journal"
    old = journal.read_bytes()
    gone = keys[-1]
    store.delete(gone)
    journal.write_bytes(old)
    assert make_store(tmp_path, "o").peek(gone) is None
    assert gone not in {session.key for session in make_store(tmp_path, "p").list()}


def test_a_store_keeps_few_sessions_in_memory_besides_the_index(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.sessions.store._MAX_AHEAD", 20)
    for key in start_many(store, 60):
        store.open(key).append(user("Again"))
        assert store.peek(key) is not None
    assert len(store._ahead) <= 21
