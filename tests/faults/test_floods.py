"""While one client floods the gateway, the messages of others begin before those that the flood has waiting."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from retinue.core.clock import random_uuid
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.lanes import LaneKind, Lanes
from retinue.dispatch.shares import ACTIVE_SECONDS, FairQueue, FairSlots, Share, StepQueue, current_share
from retinue.runtime.dispatcher.dispatcher import SPARE_PLACES, run_in_steps
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says
from retinue.wire.messages import AGENT, Say
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, wait_until

pytestmark = pytest.mark.anyio

SEEDS = range(20)
LANES, FLOOD = 2, 40
FLOODER, OTHER = ("127.0.0.1", "flood"), ("127.0.0.1", "other")


@pytest.mark.parametrize("seed", SEEDS)
async def test_another_client_begins_each_step_before_the_second_next_one_of_a_flood(seed: int) -> None:
    chance = random.Random(seed)
    steps, begun = StepQueue(), list[str]()

    async def work(name: str, count: int) -> None:
        for _ in range(count):
            begun.append(name)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(chance.randrange(20, 60)):
            share = (*FLOODER, f"connection-{number % chance.randrange(1, 5)}", f"session-{number}")
            tasks.start_soon(run_in_steps, steps, share, lambda: work("flood", chance.randrange(5, 15)))
        own = chance.randrange(3, 10)
        tasks.start_soon(run_in_steps, steps, OTHER, lambda: work("other", own))
    at = [place for place, name in enumerate(begun) if name == "other"]
    assert len(at) == own
    # One step of the flood may run in the iteration in which the other client's begins, and one in the next.
    assert max(later - earlier for earlier, later in zip([0, *at], at, strict=False)) <= 3


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_busy_client_uses_a_third_of_the_time_while_another_is_active(seed: int) -> None:
    chance, clock = random.Random(seed), Ticking()
    steps = StepQueue(clock.read)
    with ExitStack() as tasks:
        for _ in range(chance.randrange(5, 50)):
            tasks.enter_context(steps.task(FLOODER))
        tasks.enter_context(steps.task(OTHER))
        for _ in range(10):
            assert await _do_step(steps, clock, FLOODER, 0.004), "nobody else is active"
        used, began = 0.0, clock.now
        while clock.now < began + 1:
            assert await _do_step(steps, clock, OTHER, 0.0), "a client with few tasks never pauses"
            clock.now += chance.uniform(0.0, 0.003)
            took = chance.uniform(0.0001, 0.02)
            used += took if await _do_step(steps, clock, FLOODER, took) else 0
        assert 0.2 < used / (clock.now - began) < 0.36
        clock.now += ACTIVE_SECONDS * 2
        for _ in range(10):
            assert await _do_step(steps, clock, FLOODER, 0.01), "the other client is no longer active"


class Ticking:
    """A clock that the test moves."""

    now = 100.0

    def read(self) -> float:
        return self.now


async def _do_step(steps: StepQueue, clock: Ticking, share: Share, seconds: float) -> bool:
    """Do a step that takes so long, in an iteration of its own; return false if the client must wait."""
    await anyio.lowlevel.checkpoint()
    begun = steps.try_begin(share)
    if begun:
        clock.now += seconds
        steps.end(share, seconds)
    await anyio.lowlevel.checkpoint()
    return begun


async def test_a_client_without_a_slot_or_lane_gets_one_while_another_client_holds_as_many_as_it_may() -> None:
    slots, lanes, held = FairSlots(6), Lanes(4), Counter[str]()

    async def hold(name: str, slot: AbstractAsyncContextManager[None]) -> None:
        async with slot:
            held[name] += 1
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        for own in (FLOODER, OTHER):
            for number in range(5):
                key = SessionKey.parse(f"agent:main:{own[1]}-{number}")
                tasks.start_soon(hold, f"slots of {own[1]}", slots.slot(own))
                tasks.start_soon(hold, f"lanes of {own[1]}", lanes.enter(key, parent=own))
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert held == {"slots of flood": 4, "slots of other": 1, "lanes of flood": 3, "lanes of other": 1}


async def test_sub_agents_start_while_the_last_lane_is_kept_for_another_client() -> None:
    lanes, parent = Lanes(4, subagents=8), SessionKey.parse("agent:main:parent")
    async with AsyncExitStack() as held, anyio.create_task_group() as tasks:

        async def wait_for_lane(key: SessionKey) -> None:
            async with lanes.enter(key, parent=FLOODER):
                pass

        keys = [SessionKey.parse(f"agent:main:{number}") for number in range(12)]
        for key in keys[:3]:
            await held.enter_async_context(lanes.enter(key, parent=FLOODER))
        tasks.start_soon(wait_for_lane, keys[3])
        await anyio.wait_all_tasks_blocked()
        assert lanes.waiting == 1
        with anyio.fail_after(PATIENCE):
            for key in keys[4:]:
                await held.enter_async_context(lanes.enter(key, LaneKind.SUBAGENT, parent=parent))
        tasks.cancel_scope.cancel()


async def test_clients_without_tasks_are_forgotten_while_another_one_waits() -> None:
    clock = Ticking()
    steps = StepQueue(clock.read)
    with steps.task(OTHER):
        for number in range(100):
            share = (f"192.0.2.{number}", "client")
            with steps.task(share):
                assert await _do_step(steps, clock, share, 0.0)
            clock.now += ACTIVE_SECONDS
        assert len(steps) <= 3


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_free_slot_and_a_free_lane_go_to_the_client_that_has_fewer(seed: int) -> None:
    chance = random.Random(seed)
    slots, lanes, begun = FairSlots(LANES + 3), Lanes(LANES), list[str]()

    async def turn(share: Share, session: str) -> None:
        async with slots.slot(share), lanes.enter(SessionKey.parse(f"agent:main:{session}"), LaneKind.MAIN, share[:2]):
            begun.append(share[1])
            for _ in range(chance.randrange(1, 4)):
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(FLOOD):
            tasks.start_soon(turn, (*FLOODER, f"connection-{chance.randrange(3)}"), f"flood-{number}")
        for _ in range(chance.randrange(1, 20)):
            await anyio.lowlevel.checkpoint()
        waiting_from = len(begun)
        tasks.start_soon(turn, (*OTHER, "connection"), "other")
    assert len(begun) == FLOOD + 1
    # Turns that have a slot already may begin first; the turns that still wait for one may not.
    assert begun.index("other") <= waiting_from + LANES + 3 + 1


@pytest.mark.slow
async def test_a_message_of_another_client_begins_before_those_that_a_flood_has_waiting(tmp_path: Path) -> None:
    class Held(ModelServer):
        opened = asyncio.Event()

        async def reply_to(self, request: Received) -> Reply:
            await self.opened.wait()
            return says("Done.")

    async with Held() as model:
        hall = Hall(HomePaths(tmp_path / "home"), model)
        hall.config = {"agents": {"defaults": {"model": "test/test-model", "maxConcurrent": LANES}}}
        async with hall.serving():
            flooding, own = (hall.token(Scope.ADMIN, name=name) for name in ("flood", "own"))
            async with hall.client(flooding) as flood, hall.client(own) as other:
                for number in range(FLOOD):
                    await flood.call(
                        AGENT,
                        Say(message=f"flood {number}", session_key=f"flood-{number}", idempotency_key=random_uuid()),
                    )
                await wait_until(lambda: len(model.model_requests) == LANES)
                accepted = await other.call(
                    AGENT, Say(message="mine", session_key="mine", idempotency_key=random_uuid())
                )
                model.opened.set()
                with anyio.fail_after(PATIENCE):
                    await other.wait(RunId(accepted.run_id))
                    await wait_until(lambda: len(model.model_requests) == FLOOD + 1)
    texts = [request.json["messages"][-1]["content"] for request in model.model_requests]
    position = next(at for at, text in enumerate(texts) if "mine" in text)
    assert position <= LANES + SPARE_PLACES + 1 < FLOOD


def make_message(name: str) -> Say:
    return Say(message=name, session_key=name, idempotency_key=random_uuid())


async def test_shares_take_turns_at_every_level_and_keep_their_own_order() -> None:
    queue = FairQueue[str]()
    for item in ("a/x/1", "a/x/2", "a/x/3", "a/y/1", "b/z/1", "b/z/2"):
        queue.add(tuple(item.split("/")[:2]), item)
    queue.add((), "own")
    queue.remove(("a", "x"), "a/x/2")
    taken = []
    while queue:
        taken.append(queue.take())
    assert taken == ["own", "a/x/1", "b/z/1", "a/y/1", "b/z/2", "a/x/3"]


async def test_work_in_steps_has_its_result_its_error_its_share_and_its_cancellation() -> None:
    steps, seen = StepQueue(), list[str]()

    async def succeed() -> Share:
        await anyio.lowlevel.checkpoint()
        return current_share()

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("as expected")

    async def wait_for_ever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cleaned up")

    assert await run_in_steps(steps, OTHER, succeed) == OTHER
    assert current_share() == ()
    with pytest.raises(ValueError, match="as expected"):
        await run_in_steps(steps, OTHER, fail)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run_in_steps, steps, OTHER, wait_for_ever)
        await anyio.lowlevel.checkpoint()  # the first waits, the others wait for their first step
        tasks.cancel_scope.cancel()
    assert seen
    assert await run_in_steps(steps, OTHER, succeed) == OTHER


async def test_a_slot_that_a_cancelled_task_waited_for_or_had_is_free_again() -> None:
    slots = FairSlots(1)
    for _ in range(2):
        async with anyio.create_task_group() as tasks, slots.slot(OTHER):
            tasks.start_soon(_hold, slots)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE):
        async with slots.slot(FLOODER):
            pass


async def _hold(slots: FairSlots) -> None:
    async with slots.slot(FLOODER):
        await anyio.sleep_forever()
