"""The durable inbox: an accepted message is answered exactly once, even if a process dies."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.clock import random_uuid
from retinue.core.envelope import CallSummary, Inbound, Origin, Outbound, PeerKind, Source
from retinue.core.errors import SessionError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Image, Text, ToolResult, Usage
from retinue.dispatch.envelope_codec import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from retinue.dispatch.inbox import UNREADABLE, Acceptance, Inbox, InboxFull, UnknownRun
from retinue.storage.database import Database, SqliteDatabase
from retinue.testing.clock import START, FrozenClock
from tests.databases import DATABASES, open_database

KEY = SessionKey.parse("agent:main:main")
OTHER = SessionKey.parse("agent:main:ideas")
PICTURE = Image("image/png", "aGVsbG8=")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.sqlite"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    with open_database(request.param, path) as database:
        yield database


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def inbox(database: Database, clock: FrozenClock) -> Inbox:
    return Inbox(database, clock)


def run(name: str) -> RunId:
    return RunId(name)


def answer(name: str, text: str = "done", session: SessionKey = KEY) -> Outbound:
    return Outbound(run(name), session, "id", TurnStatus.OK, text)


@contextmanager
def counting_steps(database: Database) -> Iterator[list[int]]:
    """Count the instructions that SQLite executes in the block, in tens."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    with database.change() as connection:
        assert isinstance(connection, sqlite3.Connection)
        connection.set_progress_handler(count, 10)
    try:
        yield steps
    finally:
        with database.change() as connection:
            assert isinstance(connection, sqlite3.Connection)
            connection.set_progress_handler(None, 0)


def answer_many(inbox: Inbox, count: int) -> None:
    for _ in range(count):
        name = random_uuid()
        inbox.accept(Inbound("hello", KEY), run(name))
        inbox.claim(KEY, [run(name)], run(name))
        inbox.finish(run(name), answer(name))
        inbox.delivered(run(name))


LOOK_UPS: dict[str, Callable[[Inbox], object]] = {
    "a whole turn": lambda inbox: answer_many(inbox, 1),
    "waiting": lambda inbox: inbox.waiting(KEY),
    "abandoned": lambda inbox: inbox.abandoned(KEY),
    "open_messages": lambda inbox: inbox.open_messages(KEY),
    "undelivered": lambda inbox: inbox.undelivered(KEY),
    "unfinished": Inbox.unfinished,
    "is_unfinished": lambda inbox: inbox.is_unfinished(KEY),
    "count": lambda inbox: inbox.count("waiting"),
    "origin_of": lambda inbox: inbox.origin_of(KEY, run("new")),
    "last_spoken": lambda inbox: inbox.last_spoken(KEY),
}


@pytest.mark.slow
@pytest.mark.parametrize("look_up", LOOK_UPS.values(), ids=LOOK_UPS)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_answered_messages_do_not_slow_the_inbox_down(
    database: Database, inbox: Inbox, look_up: Callable[[Inbox], object]
) -> None:
    answer_many(inbox, 20)
    with counting_steps(database) as few:
        look_up(inbox)
    answer_many(inbox, 600)
    with counting_steps(database) as many:
        look_up(inbox)
    assert many[0] <= few[0] + 10


def accept(inbox: Inbox, *names: str, session: SessionKey = KEY) -> None:
    for name in names:
        inbox.accept(Inbound(f"say {name}", session), run(name))


def waiting(inbox: Inbox, session: SessionKey = KEY) -> list[str]:
    return [message.run for message in inbox.waiting(session)]


def test_messages_wait_in_the_order_in_which_they_were_accepted(inbox: Inbox, clock: FrozenClock) -> None:
    accept(inbox, "b", "a")
    clock.advance(timedelta(hours=-1))
    accept(inbox, "c")
    accept(inbox, "elsewhere", session=OTHER)
    assert waiting(inbox) == ["b", "a", "c"]
    assert waiting(inbox, OTHER) == ["elsewhere"]
    assert [message.inbound.text for message in inbox.waiting(KEY)] == ["say b", "say a", "say c"]


def test_the_acknowledgement_says_when(inbox: Inbox) -> None:
    assert inbox.accept(Inbound("hi", KEY), run("a")) == Acceptance(run("a"), START)
    assert inbox.waiting(KEY)[0].accepted_at == START


def test_the_same_idempotency_key_gets_the_first_acknowledgement(inbox: Inbox, clock: FrozenClock) -> None:
    first = inbox.accept(Inbound("hi", KEY), run("a"), "key-1")
    clock.advance(timedelta(minutes=1))
    assert inbox.accept(Inbound("hi", KEY), run("b"), "key-1") == replace(first, duplicate=True)
    assert waiting(inbox) == ["a"]
    inbox.finish(run("a"), answer("a"))
    assert inbox.accept(Inbound("hi", KEY), run("c"), "key-1") == replace(first, duplicate=True)
    assert waiting(inbox) == []


def test_the_same_run_is_accepted_once(inbox: Inbox) -> None:
    accept(inbox, "a")
    assert inbox.accept(Inbound("again", KEY), run("a")).duplicate
    assert [message.inbound.text for message in inbox.waiting(KEY)] == ["say a"]


def test_messages_without_an_idempotency_key_are_never_duplicates(inbox: Inbox) -> None:
    assert not inbox.accept(Inbound("hi", KEY), run("a")).duplicate
    assert not inbox.accept(Inbound("hi", KEY), run("b")).duplicate


def test_too_many_messages_are_refused_and_not_kept(inbox: Inbox) -> None:
    for name in ("a", "b"):
        inbox.accept(Inbound("hi", KEY), run(name), limit=2)
    with pytest.raises(InboxFull, match="2 messages wait in the session 'agent:main:main'"):
        inbox.accept(Inbound("hi", KEY), run("c"), limit=2)
    inbox.accept(Inbound("hi", OTHER), run("d"), limit=2)
    inbox.claim(KEY, [run("a")], run("a"))
    inbox.accept(Inbound("hi", KEY), run("c"), limit=2)
    assert waiting(inbox) == ["b", "c"]


def test_a_claimed_message_no_longer_waits(inbox: Inbox) -> None:
    accept(inbox, "a", "b")
    inbox.claim(KEY, [run("a")], run("a"))
    assert waiting(inbox) == ["b"]
    assert inbox.outcome(run("a")) is None


def test_a_claim_takes_all_or_nothing(inbox: Inbox) -> None:
    accept(inbox, "a", "b")
    inbox.claim(KEY, [run("b")], run("b"))
    with pytest.raises(SessionError, match="The message b is no longer waiting"):
        inbox.claim(KEY, [run("a"), run("b")], run("b"))
    assert waiting(inbox) == ["a"]


def test_a_claim_reaches_only_its_own_session(inbox: Inbox) -> None:
    accept(inbox, "a")
    with pytest.raises(SessionError):
        inbox.claim(OTHER, [run("a")], run("a"))


def test_everything_merged_into_a_turn_ends_with_it(inbox: Inbox) -> None:
    accept(inbox, "a", "b", "c")
    inbox.claim(KEY, [run("a"), run("b")], run("b"))
    assert inbox.finish(run("b"), answer("b", "both"))
    assert inbox.outcome(run("a")) == replace(answer("a", "both"), answered_with=run("b"))
    assert inbox.outcome(run("b")) == answer("b", "both")
    assert inbox.outcome(run("c")) is None
    assert inbox.abandoned(KEY) == ()
    assert waiting(inbox) == ["c"]


def test_the_first_result_of_a_message_stands(inbox: Inbox) -> None:
    accept(inbox, "a")
    assert inbox.finish(run("a"), answer("a", "first"))
    assert not inbox.finish(run("a"), answer("a", "second"))
    assert inbox.outcome(run("a")) == answer("a", "first")


def test_nobody_waits_for_a_message_that_is_not_there(inbox: Inbox) -> None:
    with pytest.raises(UnknownRun, match="Send it again"):
        inbox.outcome(run("a"))


def test_what_a_dead_process_left_is_found_and_can_wait_again_at_its_old_place(inbox: Inbox) -> None:
    accept(inbox, "a", "b", "c")
    inbox.claim(KEY, [run("a"), run("b")], run("b"))
    abandoned = inbox.abandoned(KEY)
    assert [(claimed.message.run, claimed.into) for claimed in abandoned] == [("a", "b"), ("b", "b")]
    inbox.requeue([run("a"), run("b")])
    assert waiting(inbox) == ["a", "b", "c"]
    assert inbox.abandoned(KEY) == ()


def test_the_last_words_of_the_owner_are_found_among_those_of_others(inbox: Inbox) -> None:
    assert inbox.last_spoken(KEY) is None
    inbox.accept(Inbound("mine", KEY), run("a"))
    inbox.accept(Inbound("a stranger's", KEY, owner=False), run("b"))
    inbox.accept(Inbound("a job's", KEY, source=Source.CRON), run("c"))
    found = inbox.last_spoken(KEY)
    assert found is not None
    assert found.text == "mine"
    assert inbox.last_spoken(OTHER) is None


def test_a_dropped_message_has_an_explicit_result(inbox: Inbox) -> None:
    accept(inbox, "a", "b")
    messages = inbox.waiting(KEY)
    inbox.claim(KEY, [run("b")], run("b"))
    assert inbox.drop(messages, "too many") == messages[:1]
    assert inbox.drop((), "too many") == ()
    outcome = inbox.outcome(run("a"))
    assert outcome is not None
    assert (outcome.status, outcome.error) == (TurnStatus.FAILED, "too many")
    assert inbox.outcome(run("b")) is None


def test_a_result_stays_until_somebody_delivers_it(inbox: Inbox) -> None:
    inbox.accept(Inbound("look", KEY, images=(PICTURE,), sender="ada", channel="web"), run("a"))
    accept(inbox, "b", "c")
    inbox.claim(KEY, [run("a"), run("b")], run("a"))
    inbox.finish(run("a"), answer("a"))
    [undelivered] = inbox.undelivered(KEY)
    assert undelivered.outbound == answer("a")
    assert (undelivered.inbound.channel, undelivered.inbound.sender) == ("web", "ada")
    assert inbox.delivered(run("a"))
    assert not inbox.delivered(run("a"))
    assert not inbox.delivered(run("c"))
    assert inbox.undelivered(KEY) == ()


def test_pictures_do_not_stay_after_the_answer(inbox: Inbox, database: Database) -> None:
    inbox.accept(Inbound("look", KEY, images=(Image("image/png", "A" * 10_000),)), run("a"))
    inbox.finish(run("a"), answer("a"))
    assert database.read("SELECT length(payload) FROM inbox")[0][0] < 500


def test_sessions_with_open_messages_are_known(inbox: Inbox) -> None:
    hook = SessionKey.parse("hook:abc", default_agent=AgentId("work"))
    accept(inbox, "a", session=OTHER)
    accept(inbox, "b", "c")
    accept(inbox, "d", session=hook)
    inbox.claim(KEY, [run("b")], run("b"))
    inbox.finish(run("a"), answer("a", session=OTHER))
    assert inbox.unfinished() == (KEY, hook)
    assert [key.agent for key in inbox.unfinished()] == ["main", "work"]


def test_it_is_known_whether_a_session_is_done_and_whose_a_message_is(inbox: Inbox) -> None:
    assert not inbox.is_unfinished(KEY)
    accept(inbox, "a")
    assert inbox.is_unfinished(KEY)
    assert not inbox.is_unfinished(OTHER)
    assert inbox.session_of(run("a")) == KEY
    assert inbox.message(run("a")).inbound.session == KEY
    inbox.finish(run("a"), answer("a"))
    assert not inbox.is_unfinished(KEY)
    with pytest.raises(UnknownRun, match="not in the inbox"):
        inbox.session_of(run("nobody"))


def test_what_answers_nobody_waits_for_its_delivery(inbox: Inbox) -> None:
    inbox.post(Inbound("the job ran", KEY), answer("job"))
    assert waiting(inbox) == []
    (left,) = inbox.undelivered(KEY)
    assert (left.inbound.text, left.outbound.text) == ("the job ran", "done")
    assert inbox.delivered(run("job"))


def test_messages_are_counted_by_state(inbox: Inbox) -> None:
    accept(inbox, "a", "b")
    accept(inbox, "c", session=OTHER)
    inbox.claim(KEY, [run("a")], run("a"))
    assert (inbox.count("waiting"), inbox.count("claimed")) == (2, 1)


def test_the_chat_of_a_message_is_found_again(inbox: Inbox, database: Database) -> None:
    here = Origin("http", "desk", PeerKind.DIRECT, "anna")
    there = Origin("http", "desk", PeerKind.GROUP, "garden")
    assert inbox.origin_of(KEY, run("a")) is None
    inbox.accept(Inbound("hi", KEY, origin=here), run("a"))
    inbox.accept(Inbound("all", KEY, origin=there), run("b"))
    accept(inbox, "c")
    assert (inbox.origin_of(KEY, run("a")), inbox.origin_of(KEY, run("c"))) == (here, there)
    with database.change() as base:
        base.execute("UPDATE inbox SET payload = 'damaged'")
    assert inbox.origin_of(KEY, run("a")) is None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_secrets_are_taken_out_before_a_message_is_kept(database: Database, clock: FrozenClock, path: Path) -> None:
    quiet = Inbox(database, clock, hide=lambda text: text.replace("hunter2", "***"))
    result = ToolResult("c", "theirs", (Text("hunter2"), PICTURE))
    quiet.accept(Inbound("it is hunter2", KEY, instructions="say hunter2", results=(result,)), run("a"))
    quiet.post(Inbound("told hunter2", KEY), answer("b"))
    kept = quiet.waiting(KEY)[0].inbound
    assert (kept.text, kept.instructions, kept.results[0].content) == ("it is ***", "say ***", (Text("***"), PICTURE))
    assert not any(b"hunter2" in file.read_bytes() for file in path.parent.iterdir())


def test_damaged_rows_keep_their_place_and_their_answer(inbox: Inbox, database: Database) -> None:
    accept(inbox, "a", "b")
    inbox.finish(run("a"), answer("a"))
    with database.change() as base:
        base.execute("UPDATE inbox SET payload = 'x' WHERE run = 'a'")
        base.execute("UPDATE inbox SET accepted_at = 'yesterday' WHERE run = 'b'")
    (left,) = inbox.undelivered(KEY)
    assert (left.inbound.text, left.inbound.owner, left.outbound.text) == ("", False, "done")
    assert inbox.waiting(KEY)[0].accepted_at == datetime.fromtimestamp(0, UTC)


def test_what_the_database_found_damaged_is_told(path: Path, clock: FrozenClock) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 100)
    with closing(SqliteDatabase(path)) as database:
        inbox = Inbox(database, clock)
        accept(inbox, "a")
        assert any("state.sqlite" in note for note in inbox.notes)


def test_only_old_and_ended_messages_are_forgotten(inbox: Inbox, clock: FrozenClock) -> None:
    accept(inbox, "old-done", "old-waiting")
    inbox.finish(run("old-done"), answer("old-done"))
    clock.advance(timedelta(days=8))
    accept(inbox, "new-done")
    inbox.finish(run("new-done"), answer("new-done"))
    assert inbox.prune(clock.now() - timedelta(days=7)) == 1
    assert waiting(inbox) == ["old-waiting"]
    assert inbox.outcome(run("new-done")) == answer("new-done")
    with pytest.raises(UnknownRun):
        inbox.outcome(run("old-done"))


@pytest.mark.parametrize("payload", ["", "{", "[]", '{"text": 1}', '{"text": "x", "session": "a b", "agent": "main"}'])
def test_a_message_that_cannot_be_read_stops_nobody(inbox: Inbox, database: Database, payload: str) -> None:
    accept(inbox, "a", "b")
    with database.change() as base:
        base.execute("UPDATE inbox SET payload = ? WHERE run = 'a'", (payload,))
    assert waiting(inbox) == ["b"]
    outcome = inbox.outcome(run("a"))
    assert outcome is not None
    assert outcome.error == UNREADABLE
    assert inbox.undelivered(KEY) == ()
    assert database.read("SELECT payload FROM inbox WHERE run = 'a'")[0][0] == payload


def test_a_result_that_cannot_be_read_says_so(inbox: Inbox, database: Database) -> None:
    accept(inbox, "a")
    inbox.finish(run("a"), answer("a"))
    with database.change() as base:
        base.execute("UPDATE inbox SET result = '{' WHERE run = 'a'")
    outcome = inbox.outcome(run("a"))
    assert outcome is not None
    assert outcome.status is TurnStatus.FAILED
    assert "transcript" in (outcome.error or "")


def test_a_message_keeps_everything_it_has() -> None:
    plain = Inbound("", SessionKey.parse("hook:abc", default_agent=AgentId("work")))
    full = Inbound("hé\x00\ud83d\n", KEY, (PICTURE, PICTURE), "ada", owner=False, channel="web", source=Source.CRON)
    for inbound in (plain, full, replace(full, owner=True, model="openai/gpt")):
        decoded = decode_inbound(encode_inbound(inbound))
        assert decoded == inbound
        assert decoded.session.agent == inbound.session.agent


def test_a_message_that_does_not_say_whose_it_is_is_not_the_owners() -> None:
    text = encode_inbound(Inbound("hi", KEY)).replace('"owner":true', '"owner":"yes"')
    assert not decode_inbound(text).owner


def test_a_result_keeps_everything_it_has() -> None:
    outbound = Outbound(
        run("a"),
        KEY,
        "id",
        TurnStatus.ABORTED,
        "text",
        model="openai/gpt",
        usage=Usage(1, 2, 3, 4, 0.5),
        calls=(CallSummary("read", {"path": "x", "deep": [1, {"y": None}]}, is_error=True),),
        reply_to="7",
        to_current=True,
        media=("a.png", "b.png"),
        voice=True,
        silent=True,
        error="stopped",
    )
    assert decode_outbound(encode_outbound(outbound)) == outbound


SENDER = """
import sys
from pathlib import Path
from retinue.core.clock import SystemClock
from retinue.core.envelope import Inbound
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.inbox import Inbox
from retinue.storage.database import Database, SqliteDatabase

path, name, count, claims = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "claims"
key = SessionKey.parse("agent:main:main")
inbox = Inbox(SqliteDatabase(path), SystemClock())
for number in range(count):
    run = RunId(f"{name}-{number}")
    inbox.accept(Inbound(f"message {number}", key), run, limit=100_000)
    if claims:
        inbox.claim(key, [run], run)
    print(run, flush=True)
"""


def sender(path: Path, name: str, count: int, claims: str = "") -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", SENDER, str(path), name, str(count), claims]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_accepted_messages_survive_kill_9(path: Path) -> None:
    told: list[str] = []
    for round_ in range(4):
        with sender(path, str(round_), 1_000_000) as process:
            assert process.stdout is not None
            told += [process.stdout.readline().strip() for _ in range(20 + 13 * round_)]
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read().split()
    with closing(SqliteDatabase(path)) as database:
        kept = waiting(Inbox(database, FrozenClock()))
    assert [name for name in kept if name in set(told)] == told
    assert len(kept) - len(told) <= 4


@pytest.mark.slow
def test_messages_claimed_by_a_killed_process_are_abandoned_and_none_is_lost(path: Path) -> None:
    with sender(path, "a", 1_000_000, "claims") as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().split()
    with closing(SqliteDatabase(path)) as database:
        inbox = Inbox(database, FrozenClock())
        abandoned = [claimed.message.run for claimed in inbox.abandoned(KEY)]
        assert abandoned[: len(told)] == told
        assert len(abandoned) + len(waiting(inbox)) - len(told) <= 1
        inbox.requeue(abandoned)
        assert waiting(inbox)[: len(told)] == told


@pytest.mark.slow
def test_four_processes_accept_at_once_and_each_keeps_its_order(path: Path) -> None:
    processes = [sender(path, str(n), 50) for n in range(4)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with closing(SqliteDatabase(path)) as database:
        kept = waiting(Inbox(database, FrozenClock()))
        assert database.notes == []
    assert len(kept) == 200
    for n in range(4):
        assert [name for name in kept if name.startswith(f"{n}-")] == [f"{n}-{i}" for i in range(50)]


def test_half_a_character_is_spelled_out_and_harms_nobody(inbox: Inbox) -> None:
    inbox.accept(Inbound("half \ud800 a character", KEY), run("a"))
    assert [message.inbound.text for message in inbox.waiting(KEY)] == ["half \\ud800 a character"]


def test_a_message_waits_until_a_turn_has_taken_it(inbox: Inbox) -> None:
    accept(inbox, "a")
    assert inbox.is_waiting(run("a"))
    inbox.claim(KEY, (run("a"),), run("a"))
    assert not inbox.is_waiting(run("a"))
    assert not inbox.is_waiting(run("unknown"))


def test_a_session_that_nobody_needs_any_more_is_given_up_with_what_was_begun_in_it(inbox: Inbox) -> None:
    accept(inbox, "a", "b", "c")
    accept(inbox, "elsewhere", session=OTHER)
    inbox.claim(KEY, (run("a"),), run("a"))
    inbox.finish(run("c"), answer("c"))
    assert inbox.abandon(KEY, "It was cancelled.") == 2
    assert inbox.abandon(KEY, "It was cancelled.") == 0
    given_up = inbox.outcome(run("a"))
    assert given_up is not None
    assert (given_up.status, given_up.error) == (TurnStatus.FAILED, "It was cancelled.")
    assert [item.outbound.run for item in inbox.undelivered(KEY)] == ["c"]
    assert inbox.unfinished() == (OTHER,)
