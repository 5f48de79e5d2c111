"""Subscribers observe, change and veto; one that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from msgspec import Struct
from msgspec.structs import replace

from retinue.hooks import HookBus, HookPoint, Subscriber, Vetoed

pytestmark = pytest.mark.anyio


class Greeting(Struct, frozen=True):
    words: str


GREETING = HookPoint[Greeting]("test:greeting")
GUARDED = HookPoint[Greeting]("test:guarded", fails_closed=True)


def adds(word: str) -> Callable[[Greeting], Awaitable[Greeting]]:
    async def handler(event: Greeting) -> Greeting:
        return replace(event, words=f"{event.words} {word}")

    return handler


async def test_an_event_without_subscribers_comes_back_unchanged() -> None:
    event, changes = await HookBus().fire(GREETING, Greeting("hello"))
    assert (event, changes) == (Greeting("hello"), ())


async def test_higher_priority_goes_first_and_ties_keep_their_order() -> None:
    bus = HookBus()
    bus.subscribe(GREETING, adds("third"), Subscriber("c", priority=0))
    bus.subscribe(GREETING, adds("first"), Subscriber("a", priority=10))
    bus.subscribe(GREETING, adds("fourth"), Subscriber("d", priority=0))
    bus.subscribe(GREETING, adds("second"), Subscriber("b", priority=5))
    event, changes = await bus.fire(GREETING, Greeting("hello"))
    assert event.words == "hello first second third fourth"
    assert [change.subscriber.plugin for change in changes] == ["a", "b", "c", "d"]
    assert changes[1].before.words == "hello first"


async def test_an_observer_changes_nothing() -> None:
    seen: list[str] = []

    async def observe(event: Greeting) -> None:
        seen.append(event.words)

    bus = HookBus()
    bus.subscribe(GREETING, observe, Subscriber("watcher"))
    event, changes = await bus.fire(GREETING, Greeting("hello"))
    assert (event.words, changes, seen) == ("hello", (), ["hello"])


async def test_a_failing_subscriber_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(event: Greeting) -> Greeting:
        raise ValueError("broken")

    bus = HookBus()
    bus.subscribe(GREETING, fail, Subscriber("broken", priority=1))
    bus.subscribe(GREETING, adds("still"), Subscriber("good"))
    event, _ = await bus.fire(GREETING, Greeting("hello"))
    assert event.words == "hello still"
    assert "plugin=broken" in caplog.text


async def test_a_slow_subscriber_is_cut_off() -> None:
    async def hang(event: Greeting) -> Greeting:
        await anyio.sleep_forever()
        return event

    bus = HookBus()
    bus.subscribe(GREETING, hang, Subscriber("slow", timeout=0.01))
    event, _ = await bus.fire(GREETING, Greeting("hello"))
    assert event.words == "hello"


async def test_failure_stops_the_action_where_the_point_fails_closed() -> None:
    async def fail(event: Greeting) -> Greeting:
        raise ValueError("broken")

    bus = HookBus()
    bus.subscribe(GUARDED, fail, Subscriber("guard"))
    with pytest.raises(Vetoed, match="plugin 'guard'"):
        await bus.fire(GUARDED, Greeting("hello"))


async def test_a_veto_reaches_the_caller_even_at_an_open_point() -> None:
    async def veto(event: Greeting) -> Greeting:
        raise Vetoed("not today")

    bus = HookBus()
    bus.subscribe(GREETING, veto, Subscriber("guard"))
    with pytest.raises(Vetoed, match="not today"):
        await bus.fire(GREETING, Greeting("hello"))


async def test_unsubscribing_ends_it() -> None:
    bus = HookBus()
    stop = bus.subscribe(GREETING, adds("more"), Subscriber("a"))
    stop()
    event, _ = await bus.fire(GREETING, Greeting("hello"))
    assert event.words == "hello"
