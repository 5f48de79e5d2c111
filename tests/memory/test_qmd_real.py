"""Memory through the real `qmd` program, where this machine could install it; by words, so no model is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from retinue.cli.memory import memory as memory_command
from retinue.cli.workspace import init
from retinue.core.clock import SystemClock
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.memory.qmd.index import QmdIndex
from retinue.memory.qmd.memory import QmdMemory
from retinue.runtime.agents.workspace import AgentWorkspace, open_sessions, open_workspace
from retinue.runtime.home import load_home
from retinue.runtime.memory.session_memory import SessionMemory, open_memory, open_session_memory
from retinue.sessions.entries import MessageAdded
from retinue.storage.home_paths import HomePaths
from retinue.toolkit.memory import memory_tools
from retinue.tools.tool import ToolContext

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

INSTALLED = Path(__file__).parents[2] / ".venv" / "qmd"
PROGRAM = INSTALLED / "bin" / "qmd"
MAIN = SessionKey.parse("agent:main:main")
SECRET = "sk-proj-a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6"
NOTES = {
    "MEMORY.md": "# Facts\n\nThe cat is called Minka.\nHer vet is Dr. Vogel in the harbour street.\n",
    "memory/2026-01-31.md": "# Log\n\n- Invoice INV-2024-0917 was paid.\n- ERR_TLS_42 came back after the update.\n",
    "memory/projects/Boat House (v2).md": "# Boat house\n\nWe painted the boat house green.\n",
    "memory/日本.md": "# 旅行\n\n東京タワーに行きました。\n",
    "SOUL.md": "The cat is my soul.\n",
}


@pytest.fixture(scope="module")
def program() -> Path:
    if not PROGRAM.exists():
        why = INSTALLED / "why-not"
        told = why.read_text().strip() if why.exists() else "scripts/install-qmd.sh has not run"
        pytest.skip(f"the real qmd program could not be installed: {told}")
    return PROGRAM


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("RETINUE_HOME", str(folder))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert CliRunner().invoke(init, []).exit_code == 0
    config = {
        "memory": {"backend": "qmd", "qmd": {"command": str(program), "limits": {"timeoutMs": 60_000}}},
        "agents": {"list": [{"id": "main", "default": True}, {"id": "other"}]},
    }
    (folder / "retinue.json").write_text(json.dumps(config))
    for path, text in NOTES.items():
        file = folder / "workspace" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "workspace" / "memory" / "link.md").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def room(home: Path) -> Iterator[AgentWorkspace]:
    foundation = load_home(HomePaths(home))
    with open_workspace(foundation, foundation.agent_id(None)) as opened:
        yield opened


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(memory_command, [*arguments, "--json", "--quiet"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


async def paths(memory: QmdMemory, question: str) -> list[str]:
    result = await memory.search(question)
    assert (result.backend, result.reason) == ("qmd", None)
    return [hit.path for hit in result.hits]


async def test_notes_are_found_the_way_people_ask(room: AgentWorkspace) -> None:
    async with open_memory(room) as memory:
        assert isinstance(memory, QmdMemory)
        assert (await memory.update()).changed == 4
        (hit,) = (await memory.search("INV-2024-0917")).hits
        assert (hit.path, hit.start_line, hit.end_line) == ("memory/2026-01-31.md", 1, 4)
        assert await paths(memory, "ERR_TLS_42") == ["memory/2026-01-31.md"]
        assert (await paths(memory, "Which vet does our cat see?"))[0] == "MEMORY.md"
        assert await paths(memory, "painting boats") == ["memory/projects/Boat House (v2).md"]
        assert await paths(memory, "東京タワー") == ["memory/日本.md"]
        assert await paths(memory, "-harbour --full-path -c x") == ["MEMORY.md"]
        assert await paths(memory, "root") == []


async def test_what_changes_is_followed_and_nothing_is_downloaded(room: AgentWorkspace, home: Path) -> None:
    async with open_memory(room) as memory:
        assert isinstance(memory, QmdMemory)
        await memory.update()
        workspace = home / "workspace"
        (workspace / "memory" / "2026-01-31.md").unlink()
        (workspace / "MEMORY.md").write_text("The zeppelin is called Nora.\n")
        memory.mark_dirty()
        assert await paths(memory, "zeppelin") == ["MEMORY.md"]
        assert await paths(memory, "invoice") == []
        report = await memory.sync(force=True)
        assert (report.totals.files, report.backend) == (3, "qmd")
    kept = home / "agents" / "main" / "qmd"
    assert sorted(path.name for path in (kept / "xdg-cache" / "qmd").iterdir()) == ["index.sqlite"]
    assert not (home / "models").exists()
    modes = {path.stat().st_mode & 0o077 for path in kept.rglob("*") if path.is_file()}
    assert modes == {0}


async def test_agents_do_not_see_each_others_notes(home: Path, room: AgentWorkspace) -> None:
    foundation = room.home
    other_notes = foundation.paths.workspace_of(AgentId("other"))
    other_notes.mkdir()
    (other_notes / "MEMORY.md").write_text("The cat of the neighbour.\n")
    with open_workspace(foundation, foundation.agent_id("other")) as other:
        async with open_memory(room) as ours, open_memory(other) as theirs:
            assert [hit.snippet for hit in (await theirs.search("cat")).hits] == ["The cat of the neighbour."]
            assert [hit.path for hit in (await ours.search("neighbour")).hits] == []
            assert isinstance(ours, QmdMemory)
            assert isinstance(ours.index, QmdIndex)


async def test_the_tools_search_and_read_notes_and_past_sessions_through_it(room: AgentWorkspace) -> None:
    talk = open_sessions(room.home, room.id).open(SessionKey.parse("agent:main:ideas"))
    talk.append(MessageAdded(UserMessage((Text(f"Remember the lighthouse, my key is {SECRET}."),))))
    talk.append(MessageAdded(AssistantMessage((Text("The lighthouse is noted."),))))
    settings = room.settings.memory_search
    async with open_memory(room) as memory:

        async def open_for(agent: AgentId, session: SessionKey) -> SessionMemory | None:
            return open_session_memory(memory, room.home.config.memory, settings, session)

        tools = {tool.name: tool for tool in memory_tools(open_for, SystemClock(), lambda: "id")}
        context = ToolContext(room.id, MAIN, RunId("r"), "c", room.root)

        async def call(name: str, **arguments: Any) -> Any:
            (part,) = (await tools[name].run(tools[name].parse(arguments), context)).content
            assert isinstance(part, Text)
            return json.loads(part.text)

        found = await call("memory_search", query="Minka")
        assert (found["provider"], found["mode"], "fallback" in found) == ("qmd", "text", False)
        (result,) = found["results"]
        assert result["snippet"].endswith("\n\nSource: MEMORY.md#L1-L4")
        assert set(result) == {"path", "startLine", "endLine", "score", "snippet", "source"}
        read = await call("memory_get", path=result["path"], **{"from": result["startLine"], "lines": 3})
        assert "Minka" in read["text"]
        (talked,) = (await call("memory_search", query="lighthouse"))["results"]
        assert (talked["source"], talked["path"][:9]) == ("sessions", "sessions/")
        assert "User: Remember the lighthouse" in talked["snippet"]
        assert SECRET not in talked["snippet"]
        assert (await call("memory_get", path=talked["path"]))["text"].startswith("# Session of ")


def test_the_commands_work_with_it(home: Path) -> None:
    before = run("status")
    assert (before["backend"], before["reason"], before["dirty"], before["lastSync"]) == ("qmd", None, True, None)
    assert before["program"].startswith("qmd 2.")
    assert run("index")["changed"] == 4
    after = run("status")
    assert (after["files"], after["dirty"]) == (4, False)
    assert after["collections"] == ["memory-root-main", "memory-dir-main", "sessions-main"]
    assert [problem["path"] for problem in after["problems"]] == ["memory/link.md"]
    (hit,) = run("search", "invoice paid", "--explain")
    assert (hit["path"], hit["explanation"]["text"]) == ("memory/2026-01-31.md", 1.0)
    assert run("get", hit["path"], "--from", "3", "--lines", "1")["text"] == "- Invoice INV-2024-0917 was paid."
