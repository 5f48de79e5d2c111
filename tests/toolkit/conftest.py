"""A workspace, a context and the people a tool may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import SystemClock
from retinue.core.errors import ToolFailed, UsageError
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Usage
from retinue.sessions.entries import TranscriptEntry
from retinue.storage.database import Database
from retinue.storage.files import Root
from retinue.storage.labels.command_traces import CommandTraces
from retinue.storage.provenance import AgentWrites
from retinue.toolkit.cron import JobService
from retinue.toolkit.files import patch, read_write, search
from retinue.toolkit.gateway import ConfigService
from retinue.toolkit.memory import MemoryAccess
from retinue.toolkit.message import Messenger
from retinue.toolkit.owner import OwnerContact
from retinue.toolkit.parts import SessionStatus, ToolParts
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.launch import CommandEnd
from retinue.toolkit.processes.tools import exec_tool, process_tool
from retinue.toolkit.sessions import SessionAccess
from retinue.toolkit.settings import ExecSettings, ToolsSettings
from retinue.toolkit.skills import SkillLearning
from retinue.tools.tool import Tool, ToolContext, ToolOutput
from retinue.tools.toolset import Toolset
from tests.databases import open_database


class SteppedClock:
    """A clock that moves only when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 2, 3, 12, 0, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Person:
    """Answers every question the same way and keeps what was asked."""

    verdict: Verdict = Verdict.ALLOW_ONCE
    asked: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(request)
        return ApprovalDecision(self.verdict, "the user said so", "ada")


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def new_id() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{next(numbers):08x}00000000"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with Root.open(workspace) as opened:
        yield opened


@pytest.fixture
def workspace(root: Root) -> Path:
    return root.path


@pytest.fixture
def context(root: Root) -> ToolContext:
    agent = AgentId("main")
    return ToolContext(agent=agent, session=SessionKey.main(agent), run=RunId("r1"), call_id="c1", root=root)


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
def attended(context: ToolContext, person: Person) -> ToolContext:
    """The context of a run that a person watches."""
    return replace(context, ask=person.ask)


@pytest.fixture
def ends() -> list[CommandEnd]:
    return []


@pytest.fixture
async def table(clock: SteppedClock, new_id: Callable[[], str], ends: list[CommandEnd]) -> AsyncIterator[CommandTable]:
    async def remember(end: CommandEnd) -> None:
        ends.append(end)

    async with CommandTable(clock, new_id, on_exit=remember, grace=0.3) as opened:
        yield opened


@dataclass
class Board:
    """Sessions with a model that can be changed."""

    model: str = "test/default"
    timezone: str = "Europe/Berlin"
    clock_style: str = "%H:%M"
    reaches_channels: bool = False
    controls_gateway: bool = False

    async def status(self, session: SessionKey) -> SessionStatus:
        return SessionStatus(self.model, Usage(100, 20, 900, 0, 0.0125), 200_000, 50_000, ("Queue: empty",))

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        if model == "unknown":
            raise UsageError("There is no model 'unknown'. Known: test/default, test/other.")
        self.model = model or "test/default"
        return self.model

    async def session_memory(self, agent: AgentId, session: SessionKey) -> MemoryAccess | None:
        return None

    async def transcript(self, session: SessionKey) -> Sequence[TranscriptEntry]:
        return ()

    def jobs(self) -> JobService:
        raise AssertionError("there are no jobs here")

    def session_access(self) -> SessionAccess:
        raise AssertionError("there are no other sessions here")

    def messenger(self) -> Messenger:
        raise AssertionError("there are no channels here")

    def owner_contact(self) -> OwnerContact:
        raise AssertionError("there is no owner here")

    def skill_learning(self) -> SkillLearning:
        raise AssertionError("there are no proposals here")

    def config_service(self) -> ConfigService:
        raise AssertionError("there is no configuration here")


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def parts(clock: SteppedClock, new_id: Callable[[], str], table: CommandTable, board: Board) -> ToolParts:
    return ToolParts(ToolsSettings(), clock, new_id, table, board)


async def call(tool: Tool[Any], context: ToolContext, /, **arguments: Any) -> ToolOutput:
    """Run a tool as the agent does: arguments parsed first."""
    return await tool.run(tool.parse(arguments), context)


async def failure(tool: Tool[Any], context: ToolContext, /, **arguments: Any) -> str:
    """The message of a call that must fail."""
    with pytest.raises(ToolFailed) as caught:
        await call(tool, context, **arguments)
    return str(caught.value)


def text_of(output: ToolOutput) -> str:
    return "".join(part.text for part in output.content if hasattr(part, "text"))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Database]:
    with open_database("sqlite", tmp_path / "state.sqlite") as database:
        yield database


@pytest.fixture
def writes(state: Database, context: ToolContext) -> Iterator[AgentWrites]:
    traces = CommandTraces(state)
    yield AgentWrites(state, SystemClock(), context.agent, context.workspace.path.resolve(), traces)
    traces.close()


@pytest.fixture
def plain(attended: ToolContext, writes: AgentWrites) -> ToolContext:
    return replace(attended, writes=writes)


@pytest.fixture
def tainted(plain: ToolContext) -> ToolContext:
    return replace(plain, label=Label.UNTRUSTED)


@pytest.fixture
def tools(parts: ToolParts, table: CommandTable, new_id: Callable[[], str]) -> Toolset:
    settings = ExecSettings(yield_ms=60_000, security="full", ask="off")
    inherited = {"LANG": "C.UTF-8", "HOME": "/tmp"}
    return Toolset(
        [
            *read_write.make_tools(parts),
            *patch.make_tools(parts),
            *search.make_tools(parts),
            exec_tool(table, settings, new_id, inherited),
            process_tool(table),
        ]
    )
