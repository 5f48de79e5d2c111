"""Which messages are pieces of one, how long to wait for the next, and triggers of commands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.envelope import Inbound, Origin, PeerKind, Source
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Image
from retinue.dispatch.admission import MAX_CHATS, MAX_MESSAGES, GroupContext
from retinue.dispatch.commands.command import apply_triggers, as_command
from retinue.dispatch.debounce import DebounceRules
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.queue import Batch, QueueMode, QueueRules, Wait, merge, next_batch
from retinue.dispatch.settings import InboundSettings
from retinue.testing.clock import START

KEY = SessionKey.parse("agent:main:main")
CHAT = Origin("http", "chat", PeerKind.GROUP, "room", sender="ada")
SECOND = timedelta(seconds=1)
RULES = QueueRules(QueueMode.FOLLOWUP, pieces=DebounceRules(SECOND))


def piece(name: str, seconds: float, origin: Any = CHAT, **changes: Any) -> Waiting:
    inbound = Inbound(f"say {name}", KEY, origin=origin, channel="http", sender="ada")
    return Waiting(RunId(name), replace(inbound, **changes), START + timedelta(seconds=seconds))


def taken(*waiting: Waiting, after: float, rules: QueueRules = RULES) -> str | Wait:
    batch = next_batch(waiting, rules, START + timedelta(seconds=after), idle=True)
    assert batch is not None
    return "".join(each.run for each in batch.messages) if isinstance(batch, Batch) else batch


def test_a_message_waits_for_its_next_piece_even_where_nothing_else_runs() -> None:
    assert taken(piece("a", 0), after=0.5) == Wait(START + SECOND)
    assert taken(piece("a", 0), piece("b", 0.9), after=1) == Wait(START + SECOND * 1.9)
    assert taken(piece("a", 0), piece("b", 0.9), after=1.9) == "ab"


def test_what_comes_too_late_is_a_message_of_its_own() -> None:
    assert taken(piece("a", 0), piece("b", 1.5), after=9) == "a"


@pytest.mark.parametrize(
    "other",
    [
        {"origin": replace(CHAT, sender="eve")},
        {"origin": replace(CHAT, peer="attic")},
        {"origin": replace(CHAT, thread="7")},
        {"origin": None},
        {"owner": False},
        {"source": Source.CRON},
        {"text": "/new"},
    ],
)
def test_only_words_of_one_person_in_one_chat_belong_together(other: dict[str, object]) -> None:
    assert taken(piece("a", 0), piece("b", 0.1, **other), after=9) == "a"


def test_a_picture_belongs_to_what_was_said_before_it_and_ends_it() -> None:
    picture = piece("b", 0.5, images=(Image("image/png", "eA=="),))
    assert taken(piece("a", 0), picture, piece("c", 0.6), after=0.6) == "ab"


def test_somebody_who_never_stops_is_answered_all_the_same() -> None:
    many = [piece("x", at * 0.9) for at in range(12)]
    assert taken(*many, after=10.0) == "x" * 12


def test_a_full_queue_waits_for_nothing() -> None:
    rules = replace(RULES, cap=2)
    assert taken(piece("a", 0), piece("b", 0.1), after=0.1, rules=rules) == "ab"


def test_where_all_are_collected_pieces_are_waited_for_too() -> None:
    rules = replace(RULES, mode=QueueMode.COLLECT)
    assert taken(piece("a", 0), after=0.5, rules=rules) == Wait(START + SECOND)
    assert taken(piece("a", 0), piece("b", 5), after=9, rules=rules) == "ab"


def test_pieces_are_read_as_one_message_with_one_label() -> None:
    said = [piece(name, 0, text=f"[From Ada (http:ada)]\nand {name}") for name in "ab"]
    assert merge(Batch(tuple(said), in_pieces=True)).text == "[From Ada (http:ada)]\nand a\nand b"
    with_context = [piece("a", 0, text="context\n\n[From Ada]\nand a"), piece("b", 0, text="[From Ada]\nand b")]
    assert merge(Batch(tuple(with_context), in_pieces=True)).text == "context\n\n[From Ada]\nand a\nand b"
    assert merge(Batch((piece("a", 0, text="one\ntwo"), piece("b", 0, text="one\ntwo")), in_pieces=True)).text == (
        "one\ntwo\none\ntwo"
    )


def test_channels_can_have_waits_of_their_own() -> None:
    rules = DebounceRules.of(InboundSettings(debounce_ms=100, by_channel={"sms": 900}))
    assert rules.wait_after(piece("a", 0)) == timedelta(milliseconds=100)
    assert rules.wait_after(piece("a", 0, replace(CHAT, channel="sms"))) == timedelta(milliseconds=900)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("start over", "/new"),
        ("  Start Over ", "/new"),
        ("start over now", "start over now"),
        ("/fresh", "/new"),
        ("/FRESH who are you?", "/new who are you?"),
        ("/freshly", "/freshly"),
        ("hello", "hello"),
    ],
)
def test_words_that_start_over(said: str, meant: str) -> None:
    assert as_command(said, ("", "start over", "/fresh")) == meant
    assert apply_triggers(Inbound(said, KEY, source=Source.CRON), ("start over", "/fresh")).text == said


def test_what_is_overheard_is_bounded() -> None:
    overheard = GroupContext()
    for number in range(MAX_MESSAGES + 5):
        overheard.record(CHAT, "Ada", f"{number} " + "x" * 10_000, 10_000)
    messages = overheard.recent(CHAT, 10_000)
    assert len(messages) == MAX_MESSAGES
    assert max(len(remark.text) for remark in messages) <= 500
    for number in range(MAX_CHATS):
        overheard.record(replace(CHAT, peer=f"room {number}"), "Ada", "line one\nline two", 1)
    assert overheard.recent(CHAT, 10) == ()
    assert overheard.recent(replace(CHAT, peer="room 7"), 10)[0].text == "line one line two"
    overheard.record(CHAT, "Ada", "not kept", 0)
    assert overheard.recent(CHAT, 10) == ()
