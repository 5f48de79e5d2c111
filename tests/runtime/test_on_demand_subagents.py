"""Sub-agents of a conversation that one process holds without a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from retinue.core.envelope import Inbound
from retinue.runtime.open import describe_command_end, show_nothing
from retinue.runtime.subagents.on_demand import OnDemandSubagents
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.toolkit.processes.launch import CommandEnd, CommandOutcome
from retinue.toolkit.sessions import CallingSession, SpawnArguments
from tests.runtime.conftest import Stage
from tests.runtime.delegation import MAIN, PATIENCE, Follower, Gated, delegating

pytestmark = pytest.mark.anyio

ASKER = CallingSession(MAIN, owner=True)


@asynccontextmanager
async def housed(path: Path, model: ModelServer, *, attends_wakes: bool = False) -> AsyncIterator[OnDemandSubagents]:
    async with Stage(HomePaths(path / "home"), model).open() as runtime, anyio.create_task_group() as tasks:
        subagents = OnDemandSubagents(runtime.dispatcher, MAIN, None, tasks, attends_wakes=attends_wakes)
        await subagents.open()
        yield subagents
        tasks.cancel_scope.cancel()


async def test_the_conversation_answers_to_what_its_sub_agent_found(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(delegating)
    async with housed(tmp_path, model) as subagents:
        shown = anyio.Event()

        async def show() -> None:
            shown.set()

        subagents.tasks.start_soon(subagents.watch, show)
        assert subagents.dispatcher.subagents is None
        outbound = await subagents.dispatcher.say(Inbound("What is the answer?", MAIN), show_nothing)
        assert outbound.text == "I handed it on."
        subagents.dispatcher.sessions.services.inbox.delivered(outbound.run)
        with anyio.fail_after(PATIENCE):
            await subagents.settle()
            await shown.wait()
        (answer,) = subagents.answers()
        assert answer.text == "My sub-agent found 42."
        assert subagents.at_work == 0


async def test_the_next_process_goes_on_with_what_was_left(tmp_path: Path) -> None:
    async with Gated("done at last") as model:
        async with housed(tmp_path, model) as subagents:
            await HomeSessionTools(subagents.dispatcher.sessions, subagents.dispatcher).spawn(
                ASKER, SpawnArguments(task="Work.")
            )
            with anyio.fail_after(PATIENCE):
                while not model.tasks:
                    await anyio.sleep(0.01)
            assert subagents.at_work == 1
        model.gate.set()
        async with housed(tmp_path, model) as subagents:
            with anyio.fail_after(PATIENCE):
                await subagents.settle()
            assert [answer.text for answer in subagents.answers()] == ["noted"]


async def test_several_who_ask_at_once_share_what_is_opened(tmp_path: Path, model: Follower) -> None:
    model.answer = staticmethod(delegating)
    async with housed(tmp_path, model) as subagents:
        access = HomeSessionTools(subagents.dispatcher.sessions, subagents.dispatcher)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(access.spawn, ASKER, SpawnArguments(task="Find the answer."))
        with anyio.fail_after(PATIENCE):
            await subagents.settle()
        assert subagents.at_work == 0


async def test_who_waits_for_sub_agents_does_not_wait_for_ever_for_a_command_that_ended(
    tmp_path: Path, model: Follower
) -> None:
    """Where nobody else tells the conversation of it, as in a process that asks one question."""
    model.answer = staticmethod(delegating)
    end = CommandEnd("c1", MAIN.agent, MAIN, "make", CommandOutcome.EXITED, 0, 1.0, "all built", owner=True)
    async with housed(tmp_path, model, attends_wakes=True) as subagents:
        assert subagents.dispatcher.open_subagents is not None
        await subagents.dispatcher.open_subagents()
        subagents.dispatcher.announce(describe_command_end(end))
        assert not subagents.is_settled
        with anyio.fail_after(PATIENCE):
            await subagents.settle()
        assert "all built" in model.model_requests[-1].body.decode()
