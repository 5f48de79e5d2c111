"""One outcome per message, also when something goes wrong that was not foreseen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from retinue.core.approval import Ask
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import StorageError
from retinue.core.events import Emit, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.queue import QueueMode, QueueRules
from retinue.runtime.dispatcher.commands import DispatcherClosed
from retinue.runtime.dispatcher.serving import CRASHED, MAX_ATTEMPTS, POISONOUS
from retinue.runtime.open import Runtime, show_nothing
from retinue.runtime.turns.runner import SessionRunner
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
PATIENCE = 30.0


class ScriptedRunner(SessionRunner):
    """A session whose answers fail or wait as they are told to."""

    failures: dict[str, Exception]
    gates: dict[str, anyio.Event]
    answered: list[str]

    def rules(self) -> QueueRules:
        return QueueRules(mode=QueueMode.FOLLOWUP)

    async def answer(
        self, inbound: Inbound, run: RunId, merged: tuple[RunId, ...], show: Emit, ask: Ask | None
    ) -> Outbound:
        self.answered.append(inbound.text)
        if inbound.text in self.gates:
            await self.gates[inbound.text].wait()
        if inbound.text in self.failures:
            raise self.failures[inbound.text]
        return Outbound(run, KEY, "id", TurnStatus.OK, f"answer to {inbound.text}")


@asynccontextmanager
async def scripted(path: Path) -> AsyncIterator[tuple[Runtime, ScriptedRunner]]:
    async with staged(path) as stage, stage.open() as runtime:
        runner = ScriptedRunner(runtime.agent(KEY.agent), KEY)
        runner.failures, runner.gates, runner.answered = {}, {}, []
        runtime.sessions._runners[KEY] = runner
        yield runtime, runner


def accept(runtime: Runtime, text: str) -> RunId:
    return runtime.services.inbox.accept(Inbound(text, KEY), RunId(text)).run


async def see(runtime: Runtime, run: RunId) -> Outbound:
    outcome = await runtime.dispatcher.wait(run, PATIENCE)
    assert outcome is not None
    return outcome


async def test_an_unexpected_error_ends_its_message_and_no_other(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, runner):
        runner.failures["bad"] = ZeroDivisionError("ours")
        bad, good = accept(runtime, "bad"), accept(runtime, "good")
        assert (await see(runtime, good)).text == "answer to good"
        ended = await see(runtime, bad)
        assert (ended.status, ended.error) == (TurnStatus.FAILED, CRASHED)
        assert runner.answered == ["bad", "good"]


async def test_a_message_is_not_blamed_for_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, runner):
        runner.failures["hello"] = StorageError("the disk is full")
        with pytest.raises(StorageError, match="the disk is full"):
            await runtime.say(Inbound("hello", KEY))
        (waiting,) = runtime.services.inbox.abandoned(KEY)
        runner.failures.clear()
        assert (await see(runtime, waiting.message.run)).text == "answer to hello"


@pytest.mark.parametrize(("deaths", "given_up"), [(MAX_ATTEMPTS - 1, False), (MAX_ATTEMPTS, True)])
async def test_a_message_that_ends_every_process_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, given_up: bool
) -> None:
    monkeypatch.setattr("retinue.runtime.turns.resumption.PAUSE_SECONDS", 0.001)
    async with scripted(tmp_path) as (runtime, runner):
        poison = accept(runtime, "poison")
        for _ in range(deaths):
            runtime.services.inbox.requeue([poison])
            runtime.services.inbox.claim(KEY, (poison,), poison)
        assert (await see(runtime, poison)).error == (POISONOUS if given_up else None)
        assert runner.answered == ([] if given_up else ["poison"])


async def test_a_process_that_serves_no_others_leaves_what_nobody_here_waits_for(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, runner):
        first = accept(runtime, "first")
        outbound = await runtime.say(Inbound("second", KEY))
        later = accept(runtime, "later")
        assert outbound.text == "answer to second"
        assert runner.answered == ["first", "second"]
        assert runtime.services.inbox.outcome(first) is not None
        assert runtime.services.inbox.outcome(later) is None


async def test_an_outcome_that_was_stored_meanwhile_is_the_one_that_callers_get(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, runner):
        gate = runner.gates["hello"] = anyio.Event()
        heard: list[Outbound] = []

        async def say() -> None:
            heard.append(await runtime.say(Inbound("hello", KEY)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say)
            while not runner.answered:
                await anyio.sleep(0.01)
            runtime.services.inbox.abandon(KEY, "given up elsewhere")
            gate.set()
        assert [outbound.error for outbound in heard] == ["given up elsewhere"]


async def test_a_cancelled_caller_leaves_its_message_to_the_next(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, runner):
        gate = runner.gates["hello"] = anyio.Event()
        with anyio.move_on_after(0.3):
            await runtime.say(Inbound("hello", KEY))
        (left,) = runtime.services.inbox.abandoned(KEY)
        gate.set()
        assert (await see(runtime, left.message.run)).text == "answer to hello"
        assert runner.answered == ["hello", "hello"]


async def test_everyone_who_waits_for_a_message_gets_its_outcome(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, _):
        run = accept(runtime, "hello")
        heard: list[str] = []

        async def wait() -> None:
            heard.append((await see(runtime, run)).text)

        async with anyio.create_task_group() as tasks:
            for _number in range(3):
                tasks.start_soon(wait)
        assert heard == ["answer to hello"] * 3


async def test_a_draining_dispatcher_accepts_nothing(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (runtime, _):
        assert await runtime.dispatcher.drain(1.0)
        with pytest.raises(DispatcherClosed):
            await runtime.dispatcher.say(Inbound("hello", KEY), show_nothing)
