"""The outbox: messages are neither lost, reordered nor stored twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.envelope import Attachment, Inbound, Origin, Outbound, OutgoingMessage, PeerKind, Source
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.inbox import Inbox
from retinue.dispatch.outbox import MAX_ATTEMPTS, Outbox
from retinue.storage.database import Database
from retinue.testing.clock import FrozenClock
from tests.databases import DATABASES, open_database

ROOM = Origin("http", "chat", PeerKind.GROUP, "room", sender="ada", roles=("staff",), message_id="m1")
SESSION = SessionKey.parse("agent:main:http:group:room")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as opened:
        yield opened


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def inbox(database: Database, clock: FrozenClock) -> Inbox:
    return Inbox(database, clock)


@pytest.fixture
def outbox(database: Database, clock: FrozenClock, tmp_path: Path) -> Outbox:
    return Outbox(database, clock, tmp_path / "sent.jsonl")


def answer(inbox: Inbox, inbound: Inbound, run: str) -> RunId:
    inbox.accept(inbound, RunId(run))
    inbox.finish(RunId(run), Outbound(RunId(run), inbound.session, "", TurnStatus.OK, f"answer {run}"))
    return RunId(run)


def keys(outbox: Outbox) -> list[str]:
    return [head.outgoing.key for head in outbox.heads()]


def test_an_outgoing_message_comes_back_as_it_was_put(outbox: Outbox) -> None:
    button = {"text": "Yes", "callback_data": "y"}
    outgoing = OutgoingMessage(
        *("k", ROOM, "hello"),
        media=(Attachment(name="a", media_type="b", data="c"),),
        reply_to="m1",
        buttons=((button,),),
        run=RunId("r"),
        session="s",
        voice=True,
    )
    outbox.put([outgoing])
    assert [head.outgoing for head in outbox.heads()] == [outgoing]


def test_an_answer_is_delivered_with_its_last_part(database: Database, inbox: Inbox, outbox: Outbox) -> None:
    run = answer(inbox, Inbound("hi", SESSION, origin=ROOM), "r1")
    [(inbound, outbound)] = outbox.results("http", "chat")
    assert (inbound.origin, outbound.text) == (ROOM, "answer r1")
    assert outbox.results("http", "other") == ()
    parts = [OutgoingMessage(f"r1:{number}", ROOM, "x", run=run) for number in range(2)]
    outbox.put(parts)
    assert outbox.results("http", "chat") == ()
    outbox.sent(parts[0])
    assert not was_delivered(database, run)
    outbox.sent(parts[1])
    assert was_delivered(database, run)


def was_delivered(database: Database, run: RunId) -> bool:
    return database.read("SELECT delivered_at FROM inbox WHERE run = ?", (run,))[0]["delivered_at"] is not None


def test_messages_of_a_chat_leave_in_order_and_chats_do_not_wait_for_each_other(outbox: Outbox) -> None:
    elsewhere = replace(ROOM, peer="other")
    outbox.put([OutgoingMessage("a1", ROOM), OutgoingMessage("a2", ROOM), OutgoingMessage("b1", elsewhere)])
    assert keys(outbox) == ["a1", "b1"]
    outbox.sent(outbox.heads()[0].outgoing)
    assert keys(outbox) == ["a2", "b1"]


def test_the_same_key_is_kept_once(outbox: Outbox) -> None:
    outbox.put([OutgoingMessage("a", ROOM, "one")])
    outbox.put([OutgoingMessage("a", ROOM, "two")])
    assert [head.outgoing.text for head in outbox.heads()] == ["one"]
    outbox.sent(outbox.heads()[0].outgoing)
    outbox.put([OutgoingMessage("a", ROOM, "three")])
    assert outbox.heads() == ()


def test_a_failed_try_waits_and_a_final_one_makes_way(outbox: Outbox, clock: FrozenClock) -> None:
    outbox.put([OutgoingMessage("a", ROOM), OutgoingMessage("b", ROOM)])
    assert outbox.missed(outbox.heads()[0], "no answer", final=False)
    head = outbox.heads()[0]
    assert (head.outgoing.key, head.attempts) == ("a", 1)
    assert head.due > clock.now()
    assert not outbox.missed(head, "never", final=True)
    assert keys(outbox) == ["b"]
    last = replace(outbox.heads()[0], attempts=MAX_ATTEMPTS - 1)
    assert not outbox.missed(last, "a day is over", final=False)
    assert outbox.heads() == ()


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=400)])
def test_a_message_of_a_clock_that_was_ahead_does_not_block_its_chat(
    outbox: Outbox, clock: FrozenClock, ahead: timedelta
) -> None:
    clock.set(ahead)
    outbox.put([OutgoingMessage("first", ROOM, "1"), OutgoingMessage("second", ROOM, "2")])
    (head,) = outbox.heads()
    outbox.missed(head, "no network", final=False)
    clock.set(-ahead)
    (head,) = outbox.heads()
    assert head.due <= clock.now()
    outbox.sent(head.outgoing)
    (head,) = outbox.heads()
    assert (head.outgoing.key, head.due) == ("second", clock.now())


def test_parts_wait_for_their_pauses(outbox: Outbox, clock: FrozenClock) -> None:
    outbox.put([OutgoingMessage("a", ROOM), OutgoingMessage("b", ROOM)], [0.0, 2.0])
    outbox.sent(outbox.heads()[0].outgoing)
    assert outbox.heads()[0].due == clock.now() + timedelta(seconds=2)


def test_what_a_session_says_by_itself_goes_to_the_chat_last_heard_in_it(inbox: Inbox, outbox: Outbox) -> None:
    inbox.delivered(answer(inbox, Inbound("hi", SESSION, origin=ROOM), "r1"))
    answer(inbox, Inbound("a command ended", SESSION, source=Source.BACKGROUND), "r2")
    answer(inbox, Inbound("typed in a terminal", SESSION), "r3")
    answer(inbox, Inbound("elsewhere", SessionKey.parse("agent:main:main"), source=Source.BACKGROUND), "r4")
    [(inbound, outbound)] = outbox.results("http", "chat")
    assert (outbound.run, inbound.origin) == ("r2", replace(ROOM, message_id=None))


MAIN = SessionKey.parse("agent:main:main")
PRIVATE = Origin("http", "chat", PeerKind.DIRECT, "ada", sender="ada", message_id="m2")


@pytest.mark.parametrize("source", [Source.BACKGROUND, Source.SUBAGENT])
def test_what_a_main_session_says_by_itself_goes_to_the_private_chat_where_the_owner_wrote_last(
    inbox: Inbox, outbox: Outbox, source: Source
) -> None:
    inbox.delivered(answer(inbox, Inbound("start it", MAIN, origin=PRIVATE), "r1"))
    answer(inbox, Inbound("it ended", MAIN, source=source), "r2")
    inbox.delivered(answer(inbox, Inbound("and now from my phone", MAIN, origin=replace(PRIVATE, account="b")), "r3"))
    [(inbound, outbound)] = outbox.results("http", "chat")
    assert (outbound.text, inbound.origin) == ("answer r2", replace(PRIVATE, message_id=None))
    assert outbox.results("http", "b") == ()


@pytest.mark.parametrize(
    "spoken",
    [
        Inbound("in the terminal", MAIN),
        Inbound("a guest", MAIN, owner=False, origin=replace(PRIVATE, peer="eve")),
        Inbound("in a room", MAIN, origin=ROOM),
    ],
)
def test_what_a_main_session_says_by_itself_waits_in_it_if_the_owner_wrote_elsewhere(
    inbox: Inbox, outbox: Outbox, spoken: Inbound
) -> None:
    inbox.delivered(answer(inbox, spoken, "r1"))
    answer(inbox, Inbound("it ended", MAIN, source=Source.BACKGROUND), "r2")
    answer(inbox, Inbound("a heartbeat", MAIN, source=Source.HEARTBEAT), "r3")
    inbox.delivered(answer(inbox, Inbound("hi", MAIN, origin=PRIVATE), "r4"))
    assert outbox.results("http", "chat") == ()


def test_damage_costs_one_message(database: Database, outbox: Outbox) -> None:
    outbox.put([OutgoingMessage("a", ROOM), OutgoingMessage("b", ROOM)])
    with database.change() as base:
        base.execute("UPDATE outbox SET body = '{' WHERE key = 'a'")
    assert outbox.heads() == ()
    assert keys(outbox) == ["b"]


def test_a_message_that_was_sent_is_not_sent_again_if_the_database_loses_that(
    inbox: Inbox, outbox: Outbox, database: Database, clock: FrozenClock, tmp_path: Path
) -> None:
    run = answer(inbox, Inbound("hi", SessionKey.parse("agent:main:main"), origin=ROOM), "r")
    parts = [OutgoingMessage("a1", ROOM, "one", run=run), OutgoingMessage("a2", ROOM, "two", run=run)]
    outbox.put(parts)
    for number, part in enumerate(parts):
        outbox.sent(part, f"m{number}")
    with database.change() as base:
        base.execute("UPDATE inbox SET delivered_at = NULL")
        base.execute("UPDATE outbox SET state = 'waiting', message_id = NULL WHERE key = 'a1'")
        base.execute("DELETE FROM outbox WHERE key = 'a2'")
    restarted = Outbox(database, clock, tmp_path / "sent.jsonl")
    restarted.put(parts)
    assert restarted.heads() == ()
    assert [row["state"] for row in database.read("SELECT state FROM outbox")] == ["sent", "sent"]
    # Without their ids, a later search could take them for a message that was not sent.
    assert [restarted.message_of(part.key) for part in parts] == ["m0", "m1"]
    assert database.read("SELECT 1 FROM inbox WHERE delivered_at IS NULL") == []


def test_old_keys_of_sent_messages_are_deleted(outbox: Outbox, clock: FrozenClock, tmp_path: Path) -> None:
    for key, days in (("old", 10), ("new", 0)):
        outbox.put([OutgoingMessage(key, ROOM)])
        outbox.sent(OutgoingMessage(key, ROOM))
        clock.advance(timedelta(days=days))
    outbox.prune(clock.now() - timedelta(days=7))
    assert [json.loads(line)["key"] for line in (tmp_path / "sent.jsonl").read_text().splitlines()] == ["new"]


def test_an_incomplete_line_about_a_sent_message_is_skipped(
    outbox: Outbox, database: Database, clock: FrozenClock, tmp_path: Path
) -> None:
    (tmp_path / "sent.jsonl").write_bytes(b'{"key":"torn')
    outbox.put([OutgoingMessage("a", ROOM)])
    outbox.sent(OutgoingMessage("a", ROOM))
    again = Outbox(database, clock, tmp_path / "sent.jsonl")
    again.put([OutgoingMessage("a", ROOM), OutgoingMessage("torn", ROOM)])
    assert [head.outgoing.key for head in again.heads()] == ["torn"]
