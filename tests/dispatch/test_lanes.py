"""Lanes: order within a session, limits over all, and fairness between sessions."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import anyio
import pytest
from anyio.lowlevel import checkpoint

from retinue.core.keys import SessionKey
from retinue.dispatch.lanes import LaneFull, LaneKind, Lanes, default_concurrency

pytestmark = pytest.mark.anyio


def session(name: str) -> SessionKey:
    return SessionKey.parse(f"agent:main:{name}")


A, B, C = session("a"), session("b"), session("c")


class Turn:
    """A turn that runs until it is told to end."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.end = anyio.Event()

    async def run(self, lanes: Lanes, key: SessionKey, kind: LaneKind = LaneKind.MAIN) -> None:
        async with lanes.enter(key, kind):
            self.begun.set()
            await self.end.wait()

    @property
    def running(self) -> bool:
        return self.begun.is_set() and not self.end.is_set()


async def settle() -> None:
    for _ in range(10):
        await checkpoint()


async def test_a_session_runs_one_turn_at_a_time_in_order() -> None:
    lanes = Lanes(8)
    turns = [Turn() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for turn in turns:
            tasks.start_soon(turn.run, lanes, A)
            await settle()
        for n, turn in enumerate(turns):
            assert [other.running for other in turns] == [at == n for at in range(3)]
            turn.end.set()
            await settle()
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_sessions_run_beside_each_other_up_to_the_limit() -> None:
    lanes = Lanes(2)
    turns = [Turn() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for turn, key in zip(turns, (A, B, C), strict=True):
            tasks.start_soon(turn.run, lanes, key)
            await settle()
        assert [turn.running for turn in turns] == [True, True, False]
        assert (lanes.running, lanes.waiting) == (2, 1)
        turns[1].end.set()
        await settle()
        assert [turn.running for turn in turns] == [True, False, True]
        for turn in turns:
            turn.end.set()


async def test_sub_agents_have_a_limit_of_their_own() -> None:
    lanes = Lanes(1, subagents=1)
    parent, child, second = Turn(), Turn(), Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parent.run, lanes, A)
        await settle()
        tasks.start_soon(child.run, lanes, B, LaneKind.SUBAGENT)
        tasks.start_soon(second.run, lanes, C, LaneKind.SUBAGENT)
        await settle()
        assert [parent.running, child.running, second.running] == [True, True, False]
        child.end.set()
        await settle()
        assert second.running
        parent.end.set()
        second.end.set()


async def test_a_session_that_may_not_begin_does_not_stop_those_behind_it() -> None:
    lanes = Lanes(1, subagents=1)
    running, blocked, free = Turn(), Turn(), Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.run, lanes, A)
        await settle()
        tasks.start_soon(blocked.run, lanes, B)
        await settle()
        tasks.start_soon(free.run, lanes, C, LaneKind.SUBAGENT)
        await settle()
        assert [running.running, blocked.running, free.running] == [True, False, True]
        for turn in (running, blocked, free):
            turn.end.set()


async def test_a_session_with_a_long_line_does_not_keep_others_waiting() -> None:
    lanes = Lanes(1)
    order: list[str] = []

    async def turn(key: SessionKey) -> None:
        async with lanes.enter(key):
            order.append(key.text[-1])

    first = Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run, lanes, A)
        await settle()
        for key in (A, A, A, B, B, C):
            tasks.start_soon(turn, key)
            await settle()
        first.end.set()
    assert order == ["b", "c", "a", "b", "a", "a"]


async def test_too_many_are_refused_at_once_and_the_others_go_on() -> None:
    lanes = Lanes(1, max_per_session=2, max_waiting=3)
    turns = [Turn() for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for turn in turns[:3]:
            tasks.start_soon(turn.run, lanes, A)
        await settle()
        with pytest.raises(LaneFull, match="agent:main:a"):
            await turns[3].run(lanes, A)
        tasks.start_soon(turns[3].run, lanes, B)
        await settle()
        with pytest.raises(LaneFull, match="agent:main:c"):
            await Turn().run(lanes, C)
        assert lanes.waiting == 3
        for turn in turns:
            turn.end.set()
    assert all(turn.begun.is_set() for turn in turns)
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_turn_that_gives_up_waiting_leaves_its_place() -> None:
    lanes = Lanes(1)
    first, gone, last = Turn(), Turn(), Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run, lanes, A)
        await settle()
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(gone.run, lanes, A)
            await settle()
            tasks.start_soon(last.run, lanes, A)
            await settle()
            impatient.cancel_scope.cancel()
        assert lanes.waiting == 1
        first.end.set()
        await settle()
        assert last.running
        assert not gone.begun.is_set()
        last.end.set()


async def test_a_turn_cancelled_in_the_moment_it_may_begin_gives_the_place_on() -> None:
    lanes = Lanes(1)
    first, gone, last = Turn(), Turn(), Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run, lanes, A)
        await settle()
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(gone.run, lanes, B)
            await settle()
            tasks.start_soon(last.run, lanes, C)
            await settle()
            first.end.set()
            impatient.cancel_scope.cancel()
        await settle()
        assert last.running
        last.end.set()
    assert (lanes.running, lanes.waiting) == (0, 0)


async def test_a_turn_that_fails_gives_its_place_back() -> None:
    lanes = Lanes(1)
    with pytest.raises(RuntimeError):
        async with lanes.enter(A):
            raise RuntimeError
    async with lanes.enter(A):
        assert lanes.running == 1


@pytest.mark.parametrize("seed", range(20))
async def test_order_and_limits_hold_under_any_load(seed: int) -> None:
    chance = random.Random(seed)
    lanes = Lanes(chance.randint(1, 4), subagents=chance.randint(1, 3))
    limits = {LaneKind.MAIN: lanes._free[LaneKind.MAIN], LaneKind.SUBAGENT: lanes._free[LaneKind.SUBAGENT]}
    running: Counter[LaneKind] = Counter()
    active: set[str] = set()
    asked: dict[str, list[int]] = defaultdict(list)
    begun: dict[str, list[int]] = defaultdict(list)

    async def turn(number: int, key: SessionKey, kind: LaneKind, steps: int) -> None:
        asked[key.text].append(number)
        async with lanes.enter(key, kind):
            begun[key.text].append(number)
            assert key.text not in active
            active.add(key.text)
            running[kind] += 1
            try:
                assert running[kind] <= limits[kind]
                for _ in range(steps):
                    await checkpoint()
            finally:
                running[kind] -= 1
                active.remove(key.text)

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            kind = chance.choice(list(LaneKind))
            tasks.start_soon(turn, number, session(f"{kind}-{chance.randint(1, 6)}"), kind, chance.randint(0, 5))
            if chance.random() < 0.3:
                await checkpoint()
    assert begun == asked
    assert (lanes.running, lanes.waiting) == (0, 0)


@pytest.mark.parametrize(("cpus", "turns"), [(None, 8), (1, 8), (12, 12), (64, 16)])
def test_few_processors_still_run_many_turns(cpus: int | None, turns: int) -> None:
    assert default_concurrency(cpus) == turns


async def test_places_are_shared_evenly_between_parents_however_many_each_has() -> None:
    lanes = Lanes(1, subagents=4)
    begun: list[str] = []
    ends: dict[str, anyio.Event] = {}

    async def turn(parent: SessionKey, number: int) -> None:
        name = f"{parent.text[-1]}{number}"
        ends[name] = anyio.Event()
        async with lanes.enter(session(name), LaneKind.SUBAGENT, parent):
            begun.append(name)
            await ends[name].wait()

    async with anyio.create_task_group() as tasks:
        for parent, count in ((A, 8), (B, 3), (C, 1)):
            for number in range(count):
                tasks.start_soon(turn, parent, number)
                await settle()
        assert begun == ["a0", "a1", "a2", "a3"]
        for at in range(12):
            ends[begun[at]].set()
            await settle()
    assert begun == ["a0", "a1", "a2", "a3", "b0", "c0", "a4", "a5", "b1", "b2", "a6", "a7"]


async def test_somebody_can_wait_until_a_turn_has_its_place() -> None:
    lanes = Lanes(1)
    first, second = Turn(), Turn()
    heard = anyio.Event()

    async def listen() -> None:
        await lanes.begun(B)
        heard.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run, lanes, A)
        tasks.start_soon(second.run, lanes, B)
        tasks.start_soon(listen)
        await settle()
        assert not heard.is_set()
        first.end.set()
        await settle()
        assert heard.is_set()
        await lanes.begun(B)
        second.end.set()
