"""Events are numbered and kept within limits, and gaps are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.gateway import event_hub as module
from retinue.gateway.event_hub import EventHub
from retinue.wire.frames import SessionsChanged


class Ear:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    def push(self, frame: str) -> None:
        self.frames.append(json.loads(frame))


def tell(hub: EventHub, stream: str, word: str = "x") -> None:
    hub.publish(stream, "sessions.changed", SessionsChanged(session_key=stream, reason=word))


def test_a_follower_gets_its_stream_and_no_other() -> None:
    hub, ear = EventHub("e"), Ear()
    hub.join(ear, 'quo"ted', None, None)
    tell(hub, 'quo"ted')
    tell(hub, "other")
    assert [frame["stream"] for frame in ear.frames] == ['quo"ted']
    hub.leave(ear, 'quo"ted')
    tell(hub, 'quo"ted')
    assert len(ear.frames) == 1


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(0, 60), st.integers(1, 3_000))
def test_whoever_comes_back_gets_everything_or_is_told_of_the_gap(told: list[str], seen: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_KEPT", room)
        patch.setattr(module, "MAX_KEPT_PER_STREAM", room)
        hub = EventHub("e")
        numbers: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        for number, stream in enumerate(told, start=1):
            tell(hub, stream)
            numbers[stream].append(number)
        for stream, all_of_them in numbers.items():
            joined = hub.join(Ear(), stream, seen, "e")
            got = [json.loads(frame)["seq"] for frame in joined.frames]
            missing = [number for number in all_of_them if number > seen and number not in got]
            assert got == sorted(number for number in all_of_them if number > seen and number in got)
            assert joined.gap or not missing


def test_numbers_of_another_epoch_mean_nothing() -> None:
    hub = EventHub("new")
    tell(hub, "a")
    joined = hub.join(Ear(), "a", 0, "old")
    assert joined.gap
    assert joined.frames == ()


def test_what_is_kept_has_a_limit() -> None:
    hub = EventHub("e")
    for number in range(2_000):
        tell(hub, f"stream-{number}", "y" * 10_000)
    assert hub._size <= module.MAX_KEPT
    assert len(hub._streams) < 1_000
    joined = hub.join(Ear(), "stream-0", 0, "e")
    assert joined.gap
