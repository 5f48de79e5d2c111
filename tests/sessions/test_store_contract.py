"""What every store of sessions does, in files of a home and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.envelope import Source
from retinue.core.errors import RetinueError, SessionError
from retinue.core.fence import FenceLost
from retinue.core.keys import AgentId, RunId, SessionId, SessionKey
from retinue.core.messages import Usage, said
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import (
    FLUSHED,
    Body,
    CallStarted,
    Compacted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
)
from retinue.sessions.postgres.rows import encode_entries
from retinue.sessions.postgres.store import PostgresSessions, SessionOrigin
from retinue.sessions.protocol import StoredSessions, StoredTranscript
from retinue.sessions.search import search_transcripts
from retinue.sessions.store import SessionStore
from retinue.sessions.undo_compaction import undo_compactions
from retinue.sessions.usage import sum_usage
from retinue.storage.postgres.team_storage import TeamStorage
from tests.examples import examples
from tests.postgres import create_database
from tests.sessions.builders import BODIES, MAIN, START, TickingClock, answer, counting, result, user

IDEAS = SessionKey.parse("ideas")
GROUP = SessionKey.parse("agent:main:telegram:group:-100")


class Stores:
    """Makes stores of the same sessions, each as another process would have it."""

    def __init__(self, make: Callable[[str], StoredSessions]) -> None:
        self.make = make


def in_files(folder: Path, prefix: str = "") -> SessionStore:
    return SessionStore(
        folder,
        TickingClock(),
        ids=counting(f"{prefix}e").__next__,
        session_ids=counting(f"{prefix}s").__next__,
        cwd="/home/ada",
    )


def in_database(storage: TeamStorage, prefix: str = "", agent: str = "main") -> PostgresSessions:
    return PostgresSessions(
        storage,
        AgentId(agent),
        TickingClock(),
        ids=counting(f"{prefix}e").__next__,
        origin=SessionOrigin(counting(f"{prefix}s").__next__, "/home/ada"),
    )


@pytest.fixture
def storage() -> Iterator[TeamStorage]:
    with closing(TeamStorage(create_database(), "default")) as found:
        yield found


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.slow)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "files":
        yield Stores(lambda prefix: in_files(tmp_path / "sessions", prefix))
        return
    url = create_database()
    opened: list[TeamStorage] = []

    def make(prefix: str) -> StoredSessions:
        opened.append(TeamStorage(url, "default"))
        return in_database(opened[-1], prefix)

    try:
        yield Stores(make)
    finally:
        for each in opened:
            each.close()


@pytest.fixture
def store(stores: Stores) -> StoredSessions:
    return stores.make("")


def texts(transcript: StoredTranscript) -> list[str]:
    return [message.text for message in transcript.messages]


def test_a_key_leads_to_its_conversation(store: StoredSessions) -> None:
    existed = store.exists
    store.open(MAIN).append(user("Hello"))
    store.open(IDEAS).append(user("An idea"))
    assert (existed, store.exists) == (False, True)
    assert texts(store.open(MAIN)) == ["Hello"]
    assert texts(store.open(IDEAS)) == ["An idea"]
    header = store.open(IDEAS).header
    assert header is not None
    assert (header.key, header.cwd) == (IDEAS, "/home/ada")


def test_asking_for_a_session_does_not_start_it(store: StoredSessions) -> None:
    assert store.find(MAIN) is None
    assert store.peek(MAIN) is None
    assert store.list() == ()
    assert store.archives() == ()
    assert store.usage() == ()


def test_another_process_finds_it_and_continues_it(stores: Stores) -> None:
    store, other = stores.make(""), stores.make("o")
    mine = store.open(MAIN)
    first = mine.append(user("Hello"))
    theirs = other.open(MAIN)
    theirs.append(user("from the other"))
    last = mine.append(user("not read yet"))
    assert last.parent != first.id
    mine.refresh()
    theirs.refresh()
    assert texts(mine) == texts(theirs) == ["Hello", "from the other", "not read yet"]
    assert texts(stores.make("n").open(MAIN)) == texts(mine)
    assert other.list() == store.list()
    assert other.peek(MAIN) == store.find(MAIN)


def test_a_session_is_what_its_transcript_adds_up_to(store: StoredSessions) -> None:
    transcript = store.open(GROUP)
    transcript.append(user("Hello"))
    spoken = transcript.append(answer("Hi", usage=Usage(10, 5, 2, 1, 0.125)))
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    transcript.append(ThinkingChanged(ReasoningEffort.HIGH))
    transcript.append(SettingChanged("label", "Family"))
    transcript.append(SettingChanged("verbose", "on"))
    transcript.append(SettingChanged("verbose", None))
    transcript.append(Noted(FLUSHED, {"compactions": 0}))
    transcript.append(Compacted("S", spoken.id, 9))
    transcript.append(user("tick", Source.HEARTBEAT))
    last = transcript.append(answer("ok", usage=Usage(1, 1, 0, 0, 0.5)))
    found = store.find(GROUP)
    assert found is not None
    assert (found.id, found.label, found.verbose, found.thinking) == ("s1", "Family", None, ReasoningEffort.HIGH)
    assert (found.messages, found.compactions, found.usage) == (4, 1, Usage(11, 6, 2, 1, 0.625))
    assert (found.updated_at, found.size) == (last.timestamp, transcript.size)
    assert found == store.peek(GROUP)


def test_the_last_used_session_comes_first(store: StoredSessions) -> None:
    store.open(MAIN).append(user("Hello"))
    store.open(IDEAS).append(user("An idea"))
    store.open(MAIN).append(user("again"))
    assert [session.key for session in store.list()] == [MAIN, IDEAS]


def test_beginning_a_session_happens_once(stores: Stores) -> None:
    store, other = stores.make(""), stores.make("o")
    assert store.begin(MAIN, [user("Hello"), answer("Hi")])
    assert not other.begin(MAIN, [user("Hello again")])
    assert texts(other.open(MAIN)) == ["Hello", "Hi"]


def test_a_branch_starts_at_its_parent(stores: Stores) -> None:
    transcript = stores.make("").open(MAIN)
    first = transcript.append(user("Hello"))
    transcript.append(answer("one"))
    other = transcript.append(answer("another"), parent=first.id)
    assert texts(transcript) == ["Hello", "another"]
    assert other.parent == first.id
    assert texts(stores.make("n").open(MAIN)) == ["Hello", "another"]
    with pytest.raises(SessionError, match="no entry 'nowhere'"):
        transcript.append(user("lost"), parent=first.id.__class__("nowhere"))


def test_a_compaction_shortens_what_is_read_and_can_be_undone(stores: Stores) -> None:
    transcript = stores.make("").open(MAIN)
    for number in range(400):
        last = transcript.append(user(f"{number} " + "x" * 1_000))
    transcript.append(Compacted("Many numbers.", last.id, 100_000))
    assert len(transcript.tree) < 300
    transcript.append(user("next"))
    assert [text[:4] for text in texts(transcript)] == ["399 ", "next"]
    again = stores.make("n").open(MAIN)
    assert texts(again) == texts(transcript)
    assert len(again.tree) < 402
    undone = undo_compactions(again, START + timedelta(days=1))
    assert (undone.messages_before, undone.messages_after) == (2, 401)
    transcript.refresh()
    assert [text.partition(" ")[0] for text in texts(transcript)] == [*map(str, range(400)), "next"]
    _, tree = transcript.read_all()
    assert tree.messages == transcript.messages


def test_reset_archives_and_starts_over_with_the_choices_made(store: StoredSessions) -> None:
    transcript = store.open(MAIN)
    transcript.append(user("secret plan"))
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    transcript.append(SettingChanged("verbose", "on"))
    transcript.append(SettingChanged("label", "Plan"))
    size = transcript.size
    fresh = store.reset(MAIN)
    assert texts(store.open(MAIN)) == []
    assert (fresh.model, fresh.verbose, fresh.label, fresh.parent) == (ModelRef("openai", "gpt-5"), "on", None, "s1")
    (archive,) = store.archives()
    assert (archive.why, archive.size) == ("reset", size)
    assert archive.name.startswith("s1.jsonl.reset.2026-02-03T10-00-")
    (entries,) = store.archived_entries(SessionId("s1"))
    assert [type(entry.body).__name__ for entry in entries] == [
        "MessageAdded",
        "ModelChanged",
        "SettingChanged",
        "SettingChanged",
    ]
    assert [session.id for session in store.list()] == [fresh.id]
    with pytest.raises(SessionError, match="archived meanwhile"):
        transcript.append(user("too late"))
    store.remove(archive)
    assert store.archives() == ()


def test_delete_keeps_the_transcript(store: StoredSessions) -> None:
    store.open(MAIN).append(user("Hello"))
    kept = store.delete(MAIN)
    assert ".jsonl.deleted." in kept.name
    assert store.archives() == (kept,)
    assert store.list() == ()
    assert store.find(MAIN) is None
    with pytest.raises(SessionError, match="There is no session"):
        store.delete(MAIN)
    assert texts(store.open(MAIN)) == []


def test_usage_counts_each_answer_once_and_survives_archives(stores: Stores) -> None:
    store = stores.make("")
    for key in (MAIN, IDEAS):
        transcript = store.open(key)
        transcript.append(user("Hello"))
        transcript.append(answer("Hi", usage=Usage(10, 5, 2, 1, 0.125)))
        store.find(key)
    store.reset(IDEAS)
    records = stores.make("n").usage()
    assert sum_usage(records) == Usage(20, 10, 4, 2, 0.25)
    assert [(record.session, record.entry, record.run) for record in records] == [
        (MAIN.text, "e2", "r1"),
        (IDEAS.text, "e4", "r1"),
    ]
    assert store.usage(records[1].at) == records[1:]
    assert store.usage(datetime(2026, 3, 1, tzinfo=UTC)) == ()


def test_the_end_of_a_long_transcript_can_be_read_alone(store: StoredSessions) -> None:
    transcript = store.open(MAIN)
    for number in range(300):
        transcript.append(user(f"{number} " + "x" * 500))
    tree, whole = store.read_end(SessionId("s1"), 20_000)
    assert not whole
    assert 20 < len(tree) < 300
    assert tree.path[-1].body == transcript.tree.path[-1].body
    tree, whole = store.read_end(SessionId("s1"), 10_000_000)
    assert (whole, len(tree)) == (True, 300)
    assert len(list(store.entries(SessionId("s1")))) == 300
    with pytest.raises(RetinueError):
        store.read(SessionId("none"))


def test_messages_are_found_by_their_words(store: StoredSessions) -> None:
    store.open(MAIN).append(user("The STRASSE in\0 Berlin \ud800 is long"))
    store.open(IDEAS).append(answer("A street in Rome"))
    store.open(GROUP).append(result("c1", "Berlin in a tool result"))
    listed = [(store, session) for session in store.list()]
    for query, expected in (
        ("berlin", [MAIN]),
        ("straße berlin", [MAIN]),
        ("in", [IDEAS, MAIN]),
        ("rome berlin", []),
        ('"', []),
    ):
        found, whole = search_transcripts(listed, query, 10)
        assert [session.key for session, _ in found] == expected, query
        assert whole


def test_text_comes_back_as_it_was(stores: Stores) -> None:
    odd = MessageAdded(said("NUL \0, half a pair \ud83d, line\u2028separator, \x7f"), RunId("r\0"), Source.CHAT)
    noted = Noted("my:kind\0", {"z": 1, "a": [1.5, None, "\0"], "big": 10**30, "": {"\ud800": True}})
    stores.make("").open(MAIN).append(odd)
    stores.make("o").open(MAIN).append(noted)
    stores.make("p").open(MAIN).append(CallStarted("c\0", "t\0ol", "h", None))
    path = stores.make("n").open(MAIN).tree.path
    assert [entry.body for entry in path] == [odd, noted, CallStarted("c\0", "t\0ol", "h", None)]
    assert list(path[1].body.data) == ["z", "a", "big", ""] if isinstance(path[1].body, Noted) else False


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([MAIN, IDEAS]), BODIES, st.booleans()), min_size=1, max_size=10))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(25))
def test_both_drivers_store_the_same(
    storage: TeamStorage,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[SessionKey, Body, bool]],
) -> None:
    with storage.connection.transaction() as connection:
        connection.execute("TRUNCATE session, session_entry, session_usage")
    files, rows = in_files(tmp_path_factory.mktemp("s") / "sessions"), in_database(storage)
    for key, body, resets in steps:
        for store in (files, rows):
            store.open(key).append(body)
            if resets:
                store.reset(key)
    assert rows.list() == files.list()
    assert rows.usage() == files.usage()
    assert [(each.name, each.size) for each in rows.archives()] == [(each.name, each.size) for each in files.archives()]
    for session in files.list():
        assert list(rows.entries(session.id)) == list(files.entries(session.id))
        assert rows.open(session.key).messages == files.open(session.key).messages


@pytest.fixture
def fenced(storage: TeamStorage) -> Iterator[tuple[PostgresSessions, TeamStorage]]:
    """A store whose process has the lease of the main session, and the storage of another process."""
    with closing(TeamStorage(storage.url, "default")) as other, storage.leases.lease(MAIN.text):
        yield in_database(storage), other


def take_over(other: TeamStorage) -> None:
    """Take a lease whose owner seems to be dead: it did not renew it."""
    other.connection.run(b"UPDATE lease SET expires = '-infinity'")
    assert other.leases.lease(MAIN.text).try_acquire()


@pytest.mark.slow
def test_late_writes_of_a_worker_that_was_given_up_are_refused(fenced: tuple[PostgresSessions, TeamStorage]) -> None:
    mine, other = fenced
    transcript = mine.open(MAIN)
    transcript.append(user("Hello"))
    take_over(other)
    with pytest.raises(FenceLost, match="taken over 'agent:main:main'"):
        transcript.append(answer("too late"))
    with pytest.raises(FenceLost):
        transcript.graft([transcript.tree.path[0]], transcript.tree.path[0].id)
    theirs = in_database(other, "o").open(MAIN)
    assert texts(theirs) == ["Hello"]
    theirs.append(answer("in time"))
    with pytest.raises(FenceLost):
        transcript.append(answer("still too late"))
    assert texts(in_database(other, "n").open(MAIN)) == ["Hello", "in time"]
    assert texts(in_database(other, "n").open(IDEAS)) == []
    mine.open(IDEAS).append(user("without a lease"))


@pytest.mark.slow
def test_a_worker_that_was_given_up_starts_no_session(fenced: tuple[PostgresSessions, TeamStorage]) -> None:
    mine, other = fenced
    take_over(other)
    with pytest.raises(FenceLost):
        mine.open(MAIN)
    assert in_database(other).find(MAIN) is None


@pytest.mark.slow
def test_a_write_whose_answer_was_lost_is_stored_once(storage: TeamStorage) -> None:
    transcript = in_database(storage).open(MAIN)
    transcript.append(user("Hello"))
    with closing(TeamStorage(storage.url, "default")) as other:
        find = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> %s"
        (me,) = other.connection.run(b"SELECT pg_backend_pid(), current_setting('application_name')")
        for _ in range(3):
            other.connection.run(find, (me[1], me[0]))
            transcript.append(user("again"))
            # The commit arrived and its answer did not: the same statement is sent once more.
            rows, before = transcript._rows, transcript.stored
            entry = transcript.append(user("and again"))
            assert rows.extend(before, [entry], encode_entries([entry])) == transcript.stored
        assert texts(in_database(other, "n").open(MAIN)) == ["Hello", *["again", "and again"] * 3]
