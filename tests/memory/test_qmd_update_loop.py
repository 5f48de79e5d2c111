"""When the program is asked to look again: small intervals on a real clock, and only the order is checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from retinue.cli.workspace import init
from retinue.core.keys import SessionKey
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.memory import background as cycles
from retinue.memory.background import run_qmd_updates
from retinue.memory.qmd.memory import QmdMemory
from retinue.memory.settings import QmdUpdate, SyncSettings
from retinue.runtime.agents.workspace import AgentWorkspace, open_sessions, open_workspace
from retinue.runtime.home import load_home
from retinue.runtime.memory.pool import MemoryPool
from retinue.runtime.memory.session_memory import open_memory
from retinue.sessions.entries import MessageAdded
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.structs.decode import decode
from tests.memory.conftest import OpenIndex, WriteNote
from tests.memory.stand_in import StandIn, make_memory, row

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MAIN = SessionKey.parse("agent:main:main")
NEVER = {"interval": "0", "embedInterval": "0", "onBoot": False}


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.make(tmp_path / "program")


@asynccontextmanager
async def following(memory: QmdMemory, *, watch: bool = False, **update: Any) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        settings = decode(QmdUpdate, NEVER | update)
        tasks.start_soon(run_qmd_updates, memory, settings, SyncSettings(watch=watch, watch_debounce_ms=50))
        await anyio.sleep(0)
        yield
        tasks.cancel_scope.cancel()


async def until(ready: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not ready():
            await anyio.sleep(0.01)


async def test_it_looks_at_the_start_and_then_at_intervals(
    stand_in: StandIn, tmp_path: Path, open_index: OpenIndex
) -> None:
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index())
    async with following(memory, onBoot=True, interval="50ms"):
        await until(lambda: stand_in.commands().count("update") >= 3)
    assert "embed" not in stand_in.commands()


async def test_it_embeds_after_the_first_look_where_meaning_is_searched(
    stand_in: StandIn, tmp_path: Path, open_index: OpenIndex
) -> None:
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index(), searchMode="vsearch")
    async with following(memory, onBoot=True, embedInterval="50ms"):
        await until(lambda: stand_in.commands().count("embed") >= 2)
    commands = stand_in.commands()
    assert commands.count("update") == 1
    assert commands.index("update") < commands.index("embed")


async def test_embedding_that_fails_is_tried_again_later_and_later(
    stand_in: StandIn,
    tmp_path: Path,
    open_index: OpenIndex,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cycles, "FIRST_BACKOFF_SECONDS", 1 / 128)
    monkeypatch.setattr(cycles, "MAX_BACKOFF_SECONDS", 1 / 64)
    stand_in.tell("embed", "sys.exit('no model')")
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index(), searchMode="query")
    async with following(memory, onBoot=True, embedInterval="1h"):
        await until(lambda: stand_in.commands().count("embed") >= 4)
    assert "no model" in caplog.text


async def test_changes_are_gathered_and_taken_in_once(stand_in: StandIn, tmp_path: Path, open_index: OpenIndex) -> None:
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index())
    await memory.update()
    stand_in.clear()
    async with following(memory, debounceMs=300):
        for _ in range(5):
            memory.mark_dirty()
            await anyio.sleep(0.01)
        await until(lambda: "update" in stand_in.commands())
        await until(lambda: not memory.is_dirty)
        assert stand_in.commands() == ["update"]
        memory.mark_dirty()
        await until(lambda: stand_in.commands() == ["update", "update"])


@pytest.mark.slow
async def test_a_changed_file_is_noticed(
    stand_in: StandIn, tmp_path: Path, open_index: OpenIndex, write: WriteNote
) -> None:
    write("memory/a.md", "The harbour is closed.")
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index(embedders=[]))
    memory.keeps_builtin = True
    await memory.sync()
    stand_in.clear()
    async with following(memory, watch=True, debounceMs=10):
        number = 0
        while "update" not in stand_in.commands():
            # The watcher needs a moment before it sees anything.
            number += 1
            write("memory/a.md", f"The harbour is open, {number}.")
            await anyio.sleep(0.1)
        await until(lambda: not memory.builtin.is_dirty)
        found = await memory.recall("open", rules=memory.rules, seconds=0.9)
    assert [hit.path for hit in found.hits] == ["memory/a.md"]


async def test_failures_are_logged_and_do_not_end_it(
    stand_in: StandIn, tmp_path: Path, open_index: OpenIndex, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.tell("update", "sys.exit('broken')")
    memory = make_memory(stand_in.program, tmp_path / "agent", open_index())
    async with following(memory, onBoot=True, interval="20ms"):
        await until(lambda: stand_in.commands().count("update") >= 3)
        stand_in.forget("update")
        await until(lambda: not memory.is_dirty)
    assert "broken" in caplog.text


def make_room(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, qmd: str = "", search: str = ""
) -> AgentWorkspace:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(init, []).exit_code == 0
    (tmp_path / "home" / "retinue.json").write_text(
        f'{{memory: {{backend: "qmd", qmd: {{command: "{stand_in.program}", {qmd}}}}},'
        f" agents: {{defaults: {{memorySearch: {{{search}}}}}}}}}"
    )
    (tmp_path / "home" / "workspace" / "MEMORY.md").write_text("The harbour is closed.\n")
    foundation = load_home(HomePaths(tmp_path / "home"))
    return open_workspace(foundation, foundation.agent_id(None))


@asynccontextmanager
async def memories_of(room: AgentWorkspace) -> AsyncIterator[MemoryPool]:
    with room, closing(SqliteDatabase(room.home.paths.path / "state.sqlite")) as database:
        memories = MemoryPool(database)
        try:
            yield memories
        finally:
            await memories.aclose()


async def test_it_is_started_when_memory_is_first_used(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = make_room(tmp_path, stand_in, monkeypatch, "update: {waitForBootSync: true}")
    async with memories_of(room) as memories, anyio.create_task_group() as tasks:
        tasks.start_soon(memories.follow, room)
        await anyio.sleep(0.05)
        assert stand_in.calls() == []
        assert await memories.session_memory(room, MAIN) is not None
        assert stand_in.commands()[-1] == "update"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("startup", ['startup: "immediate"', 'startup: "idle", startupDelayMs: 10'])
async def test_it_can_be_started_with_retinue(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, startup: str
) -> None:
    room = make_room(tmp_path, stand_in, monkeypatch, f"update: {{{startup}}}")
    async with memories_of(room) as memories, anyio.create_task_group() as tasks:
        tasks.start_soon(memories.follow, room)
        await until(lambda: "update" in stand_in.commands())
        tasks.cancel_scope.cancel()


async def test_opening_looks_at_nothing_where_that_is_not_wanted(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = make_room(tmp_path, stand_in, monkeypatch, "update: {onBoot: false}")
    async with memories_of(room) as memories:
        assert await memories.session_memory(room, MAIN) is not None
        assert stand_in.calls() == []


@pytest.mark.parametrize(("wait", "asked"), [(150, False), (60_000, True)])
async def test_messages_recall_through_whoever_is_quick_enough(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, wait: int, asked: bool
) -> None:
    stand_in.answer("search", row("memory-root-main/MEMORY.md"))
    room = make_room(
        tmp_path, stand_in, monkeypatch, "update: {waitForBootSync: true}", f"recall: {{timeoutMs: {wait}}}"
    )
    async with memories_of(room) as memories:
        await memories.session_memory(room, MAIN)
        stand_in.clear()
        await memories.recall(room, MAIN, "is the harbour open?")
        assert ("search" in stand_in.commands()) == asked


async def test_the_notes_of_an_agent_are_what_its_settings_say(
    tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = tmp_path / "Team Folder"
    (team / "deep").mkdir(parents=True)
    for name in ("plan.md", "deep/plan.md"):
        (team / name).write_text("The harbour plan.")
    room = make_room(
        tmp_path,
        stand_in,
        monkeypatch,
        f'includeDefaultMemory: false, sessions: {{exportDir: "{tmp_path / "exports"}"}}, paths: ['
        f'{{path: "{team}", pattern: "*.md"}}, {{path: "{team}", name: "Deep!", pattern: "deep/**/*.md"}}, '
        f'{{path: "{tmp_path / "gone"}"}}]',
    )
    talk = open_sessions(room.home, room.id).open(SessionKey.parse("agent:main:ideas"))
    talk.append(MessageAdded(UserMessage((Text("Remember the harbour."),))))
    talk.append(MessageAdded(AssistantMessage((Text("Noted."),))))
    with room:
        async with open_memory(room) as memory:
            assert isinstance(memory, QmdMemory)
            await memory.update()
            listing = memory.library.list()
            status = await memory.status()
    *plans, exported = [file.path for file in listing.files]
    assert plans == ["qmd/deep/deep/plan.md", "qmd/team-folder/plan.md"]
    assert exported.startswith("sessions/")
    assert len(list((tmp_path / "exports" / "main" / "sessions").glob("*.md"))) == 1
    assert [problem.path for problem in listing.problems] == [str(tmp_path / "gone")]
    assert status.collections == ("custom-team-folder-main", "custom-deep-main", "sessions-main")
