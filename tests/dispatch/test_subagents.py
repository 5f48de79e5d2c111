"""The store of sub-agents: counts, the first end, and results that the parent has not received."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import Usage
from retinue.dispatch.subagents import MAX_LISTED, Child, ChildState, SubagentStore, is_stale, key_for_child, time_left
from retinue.testing.clock import START, FrozenClock
from tests.databases import DATABASES, open_database

MAIN = SessionKey.main(DEFAULT_AGENT)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=DATABASES)
def book(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> Iterator[SubagentStore]:
    with open_database(request.param, tmp_path / "state.sqlite") as database:
        yield SubagentStore(database, clock)


def child(name: str, parent: SessionKey = MAIN) -> Child:
    return Child(RunId(name), parent, key_for_child(parent, DEFAULT_AGENT, name), "t", "", owner=True, asked_at=START)


def test_the_first_end_counts_and_keeps_when_it_was_started(book: SubagentStore, clock: FrozenClock) -> None:
    book.add(child("a"))
    assert book.get("a").standing == "queued"
    book.started(RunId("a"))
    clock.advance(timedelta(minutes=1))
    assert book.started(RunId("a")).started_at == START
    assert book.get("a").standing == "running"
    ended = book.end(RunId("a"), ChildState.TIMED_OUT, child("a"))
    assert (ended.started_at, ended.standing) == (START, "timed out, result waits")
    again = book.end(RunId("a"), ChildState.DONE, replace(child("a"), text="too late"))
    assert (again.state, again.text) == (ChildState.TIMED_OUT, "")
    described = book.describe_end(RunId("a"), "half of it", Usage(output=3), foreign=True)
    assert (described.text, described.usage.output, described.foreign) == ("half of it", 3, True)
    book.mark_notified(RunId("a"))
    assert book.get("a").standing == "timed out"


def test_a_parent_that_knows_needs_no_message(book: SubagentStore) -> None:
    book.add(child("a"))
    book.end(RunId("a"), ChildState.CANCELLED, child("a"), parent_knows=True)
    assert book.active() == ()


def test_what_is_left_is_found_however_much_it_is(book: SubagentStore) -> None:
    other = SessionKey.parse("agent:main:other")
    for number in range(MAX_LISTED + 5):
        book.add(child(f"a{number:03d}"))
    book.add(child("b", other))
    book.end(RunId("a000"), ChildState.DONE, child("a000"))
    assert len(book.active()) == MAX_LISTED + 6
    assert [each.run for each in book.active(other)] == ["b"]
    assert book.count(MAIN) == (MAX_LISTED + 4, 1)
    assert len(book.all()) == MAX_LISTED
    found = book.of_session(child("b", other).session)
    assert found is not None
    assert found.run == "b"


def test_a_beginning_is_taken_as_it_is_written(book: SubagentStore) -> None:
    book.add(child("abc"))
    assert book.get("ab").run == "abc"
    for pattern in ("%", "_bc"):
        with pytest.raises(Exception, match="There is no sub-agent"):
            book.get(pattern)


def test_time_counts_from_the_first_start() -> None:
    quick = replace(child("a"), timeout=timedelta(seconds=10))
    assert time_left(child("a"), START) is None
    assert time_left(quick, START + timedelta(hours=1)) == timedelta(seconds=10)
    begun = replace(quick, started_at=START)
    assert time_left(begun, START + timedelta(seconds=4)) == timedelta(seconds=6)
    assert time_left(begun, START + timedelta(hours=1)) == timedelta()


def test_after_two_hours_nobody_waits_any_more() -> None:
    assert not is_stale(START, START + timedelta(hours=2))
    assert is_stale(START, START + timedelta(hours=2, seconds=1))


def test_a_name_means_the_child_at_work_or_else_the_newest(book: SubagentStore, clock: FrozenClock) -> None:
    for number in range(3):
        book.add(replace(child(f"a{number}"), task_name="scout", asked_at=clock.now()))
        clock.advance(timedelta(minutes=1))
    book.add(replace(child("b", SessionKey.parse("agent:main:other")), task_name="guide"))
    for name in ("a1", "a2"):
        book.end(RunId(name), ChildState.DONE, book.get(name))
    found = book.named(MAIN, "scout")
    assert found is not None
    assert found.run == "a0"
    book.end(RunId("a0"), ChildState.DONE, found)
    newest = book.named(MAIN, "scout")
    assert newest is not None
    assert newest.run == "a2"
    assert book.named(MAIN, "guide") is None


def test_what_was_told_and_put_away_is_forgotten_and_nothing_else(book: SubagentStore, clock: FrozenClock) -> None:
    for name in ("running", "untold", "told", "archived"):
        book.add(child(name))
    for name in ("untold", "told", "archived"):
        book.end(RunId(name), ChildState.DONE, child(name), parent_knows=name != "untold")
    book.archived(RunId("archived"))
    clock.advance(timedelta(days=30))
    book.forget(timedelta(days=30))
    assert len(book.all()) == 4
    clock.advance(timedelta(seconds=1))
    book.forget(timedelta(days=30))
    assert {each.run for each in book.all()} == {"running", "untold", "told"}


def test_a_result_that_nobody_takes_stops_waiting_and_stays_readable(book: SubagentStore, clock: FrozenClock) -> None:
    book.add(child("running"))
    book.add(child("old"))
    book.end(RunId("old"), ChildState.DONE, replace(child("old"), text="It is 42."))
    clock.advance(timedelta(days=7))
    assert book.expire(timedelta(days=7)) == ()
    clock.advance(timedelta(seconds=1))
    assert [each.run for each in book.expire(timedelta(days=7))] == ["old"]
    assert book.count(MAIN) == (1, 0)
    assert book.get("old").text == "It is 42."
    assert book.expire(timedelta(days=7)) == ()
