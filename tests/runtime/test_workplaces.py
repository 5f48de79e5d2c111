"""A sub-agent that is kept to one folder of the workspace: what its tools reach, and what it can never widen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import AgentId, SessionKey
from retinue.dispatch.subagents import Child, ChildState, SpawnOrder
from retinue.runtime.inspect.explain import inspect_session
from retinue.runtime.subagents.session_tools import HomeSessionTools
from retinue.runtime.subagents.setup import SpawnRefused
from retinue.sessions.session import working_folder
from retinue.structs.decode import decode
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from retinue.toolkit.sessions import CallingSession, SpawnArguments
from retinue.tools.policy import Effect
from tests.runtime.delegation import MAIN, TASK, Gated, Scene, last_words, serving

pytestmark = pytest.mark.anyio


class Scripted(ModelServer):
    """A model whose sub-agents make the given calls, one after the other, and whose conversations only take note."""

    def __init__(self, *wanted: Reply) -> None:
        super().__init__()
        self.wanted = list(wanted)
        self.seen: list[str] = []
        self.prompts: list[str] = []

    async def reply_to(self, request: Received) -> Reply:
        if TASK.encode() not in request.body:
            return says("noted")
        self.seen.append(last_words(request))
        self.prompts.append(json.dumps(request.json["messages"][0]))
        return self.wanted.pop(0) if self.wanted else says("done")


def furnish(scene: Scene) -> Path:
    """Two projects in the workspace, beside what lies there anyway."""
    scene.runtime.agent(AgentId("main"))
    for name in ("one", "two"):
        (scene.stage.workspace / f"projects/{name}").mkdir(parents=True)
        (scene.stage.workspace / f"projects/{name}/notes.md").write_text(f"about {name}\n")
    return scene.stage.workspace


async def work_in(scene: Scene, folder: str, parent: SessionKey = MAIN) -> Child:
    return await scene.told(await scene.spawn(SpawnOrder("x", workspace=folder), parent))


@pytest.mark.slow
async def test_tools_commands_and_the_prompt_are_those_of_the_folder(tmp_path: Path) -> None:
    wanted = (
        calls("read", path="notes.md"),
        calls("read", path="../two/notes.md"),
        calls("write", path="made.md", content="made\n"),
        calls("exec", command="ls"),
    )
    async with Scripted(*wanted) as model, serving(tmp_path, model) as scene:
        workspace = furnish(scene)
        child = await work_in(scene, "projects/one")
        assert child.state is ChildState.DONE
        assert "about one" in model.seen[1]
        assert f"outside the workspace {workspace / 'projects/one'}" in model.seen[2]
        assert (workspace / "projects/one/made.md").read_text() == "made\n"
        assert "made.md\nnotes.md" in model.seen[4]
        assert f"Working directory: {workspace / 'projects/one'}" in model.prompts[0]
        assert "## AGENTS.md" in model.prompts[0]


async def test_an_agent_that_may_leave_its_workspace_starts_children_that_may_not(tmp_path: Path) -> None:
    async def read(name: str, folder: str) -> str:
        async with Scripted(calls("read", path="/etc/hostname")) as model:
            config = {"tools": {"fs": {"workspaceOnly": False}}}
            async with serving(tmp_path / name, model, **config) as scene:
                furnish(scene)
                await work_in(scene, folder)
                return model.seen[1]

    assert "outside the workspace" not in await read("free", "")
    assert "outside the workspace" in await read("kept", "projects")


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("..", "outside the workspace"),
        ("projects/../../agents", "outside the workspace"),
        ("/etc", "outside the workspace"),
        ("projects/none", "projects/none"),
        ("projects/one/notes.md", "notes.md"),
        ("link", "link"),
        ("link/inside", "link"),
        (".git", "control files"),
        ("sub/.git/refs", "control files"),
        ("hooks", "control files"),
        ("hooks/mine", "control files"),
    ],
)
async def test_a_folder_that_is_none_or_not_the_agents_is_refused(tmp_path: Path, folder: str, why: str) -> None:
    outside = tmp_path / "outside/inside"
    outside.mkdir(parents=True)
    async with Gated() as model, serving(tmp_path, model) as scene:
        workspace = furnish(scene)
        (workspace / "link").symlink_to(outside.parent)
        for name in (".git", "sub/.git/refs", "hooks/mine"):
            (workspace / name).mkdir(parents=True, exist_ok=True)
        with pytest.raises(SpawnRefused, match="cannot work in") as refused:
            await scene.spawn(SpawnOrder("x", workspace=folder))
        assert why in str(refused.value)
        assert scene.subagents.store.all() == ()


async def test_children_of_a_child_stay_in_its_folder_and_can_only_go_deeper(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 3}}}}
    async with Gated() as model, serving(tmp_path, model, **config) as scene:
        workspace = furnish(scene)
        child = await scene.spawn(SpawnOrder("x", workspace=str(workspace / "projects")))
        with pytest.raises(SpawnRefused, match="outside the workspace"):
            await scene.spawn(SpawnOrder("x", workspace="../skills"), child.session)
        same = await scene.spawn(SpawnOrder("x"), child.session)
        deeper = await scene.spawn(SpawnOrder("x", workspace="one"), child.session)
        store = scene.runtime.agent(AgentId("main")).store
        kept = [working_folder(store.find(each.session)) for each in (child, same, deeper)]
        assert kept == ["projects", "projects", "projects/one"]
        model.gate.set()
        await scene.told(child)


async def test_the_folder_holds_after_a_restart_and_a_lost_one_ends_the_child(tmp_path: Path) -> None:
    async with Scripted() as model:
        async with serving(tmp_path, model) as scene:
            workspace = furnish(scene)
            child = await work_in(scene, "projects/one")
        async with serving(tmp_path, model) as scene:
            stand = inspect_session(scene.runtime.home, child.session)
            assert stand.judge_path("read", "notes.md").effect is Effect.ALLOW
            assert stand.judge_path("read", "../two/notes.md").effect is Effect.DENY
            model.wanted = [calls("read", path="notes.md")]
            await scene.say("Look again.", child.session)
            assert "about one" in model.seen[-1]
            (workspace / "projects/one").rename(workspace / "elsewhere")
            (workspace / "projects/one").symlink_to(workspace)
            assert "cannot be used anymore" in await scene.say("And again.", child.session)
            assert stand.judge_path("read", "AGENTS.md").effect is Effect.DENY


async def test_what_comes_from_outside_is_known_by_its_place_in_the_workspace(tmp_path: Path) -> None:
    wanted = calls("write", path="page.md", content="do as I say\n")
    async with Scripted(wanted) as model, serving(tmp_path, model) as scene:
        furnish(scene)
        order = SpawnOrder("x", workspace="projects/one")
        spawned = await scene.subagents.spawn(order, CallingSession(MAIN, owner=True, tainted=True))
        await scene.told(spawned.child)
        parts = scene.runtime.agent(AgentId("main"))
        written = parts.shared.memories.writes(parts.workspace)
        assert "projects/one/page.md" in written.paths()


@pytest.mark.slow
async def test_memory_is_still_that_of_the_agent(tmp_path: Path) -> None:
    wanted = calls("memory_write", text="Remember the tea.", note="tea")
    async with Scripted(wanted) as model, serving(tmp_path, model) as scene:
        workspace = furnish(scene)
        wish = decode(SpawnArguments, {"task": "x", "cwd": "projects"})
        await HomeSessionTools(scene.runtime.sessions, scene.runtime.dispatcher).spawn(
            CallingSession(MAIN, owner=True), wish
        )
        (child,) = scene.subagents.store.all()
        await scene.told(child)
        assert f"Working directory: {workspace / 'projects'}" in model.prompts[0]
        assert (workspace / "memory/tea.md").read_text() == "Remember the tea.\n"


def sandboxed(access: str) -> dict[str, Any]:
    return {"agents": {"defaults": {"sandbox": {"mode": "non-main", "workspaceAccess": access}}}}


@pytest.mark.slow
@pytest.mark.parametrize("access", ["ro", "rw"])
async def test_a_sandboxed_child_starts_its_commands_in_the_folder(tmp_path: Path, access: str) -> None:
    wanted = (calls("exec", command="ls"), calls("write", path="made.md", content="x"))
    async with Scripted(*wanted) as model, serving(tmp_path, model, **sandboxed(access)) as scene:
        workspace = furnish(scene)
        await work_in(scene, "projects/two")
        assert "notes.md" in model.seen[1]
        assert "AGENTS.md" not in model.seen[1]
        assert (workspace / "projects/two/made.md").exists() is (access == "rw")
        assert f"Working directory: {workspace / 'projects/two'}" in model.prompts[0]


async def test_a_child_without_the_workspace_has_no_folder_of_it(tmp_path: Path) -> None:
    async with Gated() as model, serving(tmp_path, model, **sandboxed("none")) as scene:
        furnish(scene)
        with pytest.raises(SpawnRefused, match="projects/one"):
            await scene.spawn(SpawnOrder("x", workspace="projects/one"))
        (scene.stage.home.path / "sandboxes/agent-main/work/projects/one").mkdir(parents=True)
        await scene.spawn(SpawnOrder("x", workspace="projects/one"))


@pytest.mark.parametrize("spelling", ["workspace", "cwd"])
def test_the_folder_has_two_names(spelling: str) -> None:
    assert decode(SpawnArguments, {"task": "x", spelling: "projects"}).workspace == "projects"
