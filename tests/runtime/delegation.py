"""A runtime that serves sessions and their sub-agents, with a model that a function answers for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.dispatch.subagents import Child, SpawnOrder
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.open import Runtime
from retinue.runtime.subagents.runner import SubagentRunner, open_subagents
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import FrozenClock
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from retinue.toolkit.sessions import CallingSession, ToolAnswer
from tests.runtime.conftest import Stage

MAIN = SessionKey.main(DEFAULT_AGENT)
PATIENCE = 30.0
TASK = "[Sub-agent task]"


def last_words(request: Received) -> str:
    """The last thing that a model was told."""
    content = request.json["messages"][-1]["content"]
    text: str = content if isinstance(content, str) else content[-1]["text"]
    return text


class Follower(ModelServer):
    """A model that a function answers for, from the last thing that was said."""

    answer: Callable[[str], Reply]

    async def reply_to(self, request: Received) -> Reply:
        return self.answer(last_words(request))


class Gated(ModelServer):
    """A model whose sub-agents wait for the gate, and whose conversations answer at once."""

    def __init__(self, result: str = "done at last") -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.result = result
        self.tasks: list[str] = []

    async def reply_to(self, request: Received) -> Reply:
        text = last_words(request)
        if not text.startswith(TASK):
            return says("noted")
        self.tasks.append(text.removeprefix(TASK).strip())
        await self.gate.wait()
        return says(self.result)


@dataclass
class Scene:
    """A runtime that serves sessions, with everything that was shown."""

    runtime: Runtime
    board: Dispatcher
    subagents: SubagentRunner
    stage: Stage
    events: list[TurnEvent] = field(default_factory=list)

    async def say(self, text: str, session: SessionKey = MAIN) -> str:
        accepted = await self.board.submit(Inbound(text, session))
        answer = await self.board.wait(accepted.run, PATIENCE)
        assert answer is not None
        return answer.text or answer.error or ""

    async def until(self, reached: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE):
            while not reached():
                await anyio.sleep(0.01)

    async def spawn(self, order: SpawnOrder, parent: SessionKey = MAIN) -> Child:
        return (await self.subagents.spawn(order, CallingSession(parent, owner=True))).child

    async def told(self, child: Child) -> Child:
        """The child, once its parent knows what came of it."""
        await self.until(lambda: self.child(child).told_at is not None)
        return self.child(child)

    def child(self, child: Child) -> Child:
        return self.subagents.store.get(child.run)

    def announcements(self, child: Child, session: SessionKey = MAIN) -> list[str]:
        """How a child's end stands in a session."""
        return [text for text in self.said(session) if text.startswith(f"[Sub-agent {child.run} ")]

    def said(self, session: SessionKey = MAIN) -> list[str]:
        history = HomeSessionTools(self.runtime.sessions, self.runtime.dispatcher)._messages(session, 100)
        return [row["text"] for row in history]


@asynccontextmanager
async def serving(
    path: Path, model: ModelServer, clock: FrozenClock | None = None, /, **config: Any
) -> AsyncIterator[Scene]:
    stage = Stage(HomePaths(path / "home"), model, config=config, clock=clock or FrozenClock())
    async with stage.open() as runtime:
        events: list[TurnEvent] = []

        def publish(session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
            events.append(event)

        async with (
            runtime.dispatcher.serving(publish, None) as board,
            open_subagents(board) as subagents,
        ):
            yield Scene(runtime, board, subagents, stage, events)


def delegating(text: str) -> Reply:
    """A model that hands a request on, works on a task, and reports what it was told."""
    if text.startswith("[Sub-agent task]"):
        return says("The answer is 42.")
    if text.startswith("[Sub-agent "):
        return says("My sub-agent found 42.")
    if text.startswith("{"):
        return says("I handed it on.")
    return calls("tool_call", name="sessions_spawn", arguments={"task": "Find the answer.", "label": "search"})


def rows(told: ToolAnswer) -> list[dict[str, Any]]:
    """What an agent was told, where it is a list."""
    assert isinstance(told.facts, list)
    return told.facts
