"""Sandboxed sessions: where their tools work, what their prompt says, what is left of them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound
from retinue.core.keys import AgentId, SessionKey
from retinue.testing.replies import calls, says
from tests.runtime.conftest import Stage, staged

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MAIN = SessionKey.parse("agent:main:main")
IDEAS = SessionKey.parse("agent:main:ideas")


async def yes(request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(Verdict.ALLOW_ONCE, "said yes", "tester")


def sandboxed(**settings: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"sandbox": {"mode": "non-main", **settings}}}}


def last_result(stage: Stage) -> str:
    return json.dumps(stage.server.model_requests[-1].json["messages"][-1])


def system_prompt(stage: Stage) -> str:
    return str(stage.server.model_requests[-1].json["messages"][0]["content"])


async def test_tools_and_commands_of_a_sandboxed_session_work_in_the_same_folder(tmp_path: Path) -> None:
    replies = (
        calls("write", path="note.txt", content="from the tool\n"),
        calls("exec", command="cat note.txt; echo made > made.txt; ls ../../../workspace"),
        calls("read", path="made.txt"),
        says("Done."),
    )
    async with staged(tmp_path, *replies, config=sandboxed()) as stage:
        await stage.ask("go", session="ideas", ask=yes)
        results = [json.dumps(request.json["messages"][-1]) for request in stage.server.model_requests[1:]]
        work = stage.home.path / "sandboxes/agent-main/work"
        assert "from the tool" in results[1]
        assert "No such file" in results[1]
        assert "made" in results[2]
        assert (work / "note.txt").read_text() == "from the tool\n"
        assert not (stage.workspace / "note.txt").exists()
        assert f"Working directory: {work}" in system_prompt(stage)
        assert "## Sandbox" in system_prompt(stage)


async def test_the_main_session_stays_unconfined(tmp_path: Path) -> None:
    replies = (calls("exec", command="touch made.txt"), says("Done."))
    async with staged(tmp_path, *replies, config=sandboxed()) as stage:
        await stage.ask("go", ask=yes)
        assert (stage.workspace / "made.txt").exists()
        assert "## Sandbox" not in system_prompt(stage)
        assert not (stage.home.path / "sandboxes").exists()


async def test_a_read_only_workspace_is_read_and_not_written(tmp_path: Path) -> None:
    replies = (
        calls("write", path="note.txt", content="x"),
        calls("exec", command="touch made.txt; ls AGENTS.md"),
        says("Done."),
    )
    async with staged(tmp_path, *replies, config=sandboxed(workspaceAccess="ro")) as stage:
        await stage.ask("go", session="ideas", ask=yes)
        results = [json.dumps(request.json["messages"][-1]) for request in stage.server.model_requests[1:]]
        assert "read-only for this session" in results[0]
        assert "AGENTS.md" in results[1]
        assert not (stage.workspace / "note.txt").exists()
        assert not (stage.workspace / "made.txt").exists()


async def test_a_writable_workspace_is_shared(tmp_path: Path) -> None:
    replies = (calls("exec", command="echo shared > made.txt"), calls("read", path="made.txt"), says("Done."))
    async with staged(tmp_path, *replies, config=sandboxed(workspaceAccess="rw")) as stage:
        await stage.ask("go", session="ideas", ask=yes)
        assert (stage.workspace / "made.txt").read_text() == "shared\n"
        assert "shared" in last_result_of(stage, -1)


def last_result_of(stage: Stage, position: int) -> str:
    return json.dumps(stage.server.model_requests[position].json["messages"][-1])


async def test_a_required_sandbox_that_is_missing_refuses_commands(tmp_path: Path) -> None:
    replies = (calls("exec", command="pwd"), says("I cannot."))
    async with staged(tmp_path, *replies, config=sandboxed(backend="ssh")) as stage:
        await stage.ask("go", session="ideas", ask=yes)
        assert "need a sandbox" in last_result(stage)
        assert "apt-get install bubblewrap" in last_result(stage)


async def test_elevated_sessions_work_in_the_real_workspace(tmp_path: Path) -> None:
    replies = (calls("exec", command="touch made.txt"), says("Done."))
    async with staged(tmp_path, *replies, config=sandboxed()) as stage:
        await stage.ask("/elevated on", "go", session="ideas", ask=yes)
        assert (stage.workspace / "made.txt").exists()


async def test_sessions_share_a_sandbox_or_do_not(tmp_path: Path) -> None:
    replies = (calls("exec", command="echo x > mine.txt"), says("."), calls("exec", command="ls"), says("."))
    async with staged(tmp_path, *replies, config=sandboxed(scope="session")) as stage:
        await stage.ask("go", session="ideas", ask=yes)
        await stage.ask("go", session="plans", ask=yes)
        assert "mine.txt" not in last_result(stage)
        assert len(list((stage.home.path / "sandboxes").iterdir())) == 2


async def test_an_unused_sandbox_is_removed_and_made_anew(tmp_path: Path) -> None:
    replies = (
        calls("write", path="old.txt", content="x"),
        says("."),
        calls("write", path="new.txt", content="x"),
        says("."),
    )
    async with staged(tmp_path, *replies, config=sandboxed()) as stage, stage.open() as runtime:
        await runtime.say(Inbound("go", IDEAS), stage.emit, yes)
        work = stage.home.path / "sandboxes/agent-main/work"
        assert (work / "old.txt").exists()
        stage.clock.advance(timedelta(hours=25))
        runtime.tidy(AgentId("main"))
        assert not work.exists()
        await runtime.say(Inbound("go", IDEAS), stage.emit, yes)
        assert [path.name for path in work.iterdir()] == ["new.txt"]


async def test_the_prompt_is_the_same_from_turn_to_turn(tmp_path: Path) -> None:
    async with staged(tmp_path, says("one"), says("two"), config=sandboxed(workspaceAccess="rw")) as stage:
        await stage.ask("first", "second", session="ideas")
        first, second = (request.json["messages"][0] for request in stage.server.model_requests)
        assert first == second
