"""One tool call over HTTP, under the policy of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from retinue.gateway.routes.tools import DENIED_OVER_HTTP
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket

pytestmark = pytest.mark.anyio


async def invoke(hall: Hall, tool: str, token: str | None = None, **body: Any) -> httpx2.Response:
    async with hall.http(token) as client:
        return await client.post("/tools/invoke", json={"tool": tool, **body})


def workspace(hall: Hall) -> Path:
    return hall.home.path / "workspace"


async def test_a_tool_gives_its_result(hall: Hall) -> None:
    await invoke(hall, "ls")  # makes the workspace
    (workspace(hall) / "note.txt").write_text("remember the milk")
    answer = await invoke(hall, "read", args={"path": "note.txt"})
    assert answer.status_code == 200
    given = answer.json()
    assert (given["ok"], given["tool"], given["result"]["isError"]) == (True, "read", False)
    assert "remember the milk" in given["result"]["content"][0]["text"]
    assert hall.model.model_requests == []


async def test_a_failing_tool_says_why(hall: Hall) -> None:
    for args in ({"path": "nothing.txt"}, {"path": "../../etc/passwd"}, {"wrong": 1}):
        answer = await invoke(hall, "read", args=args)
        assert answer.status_code == 200
        assert answer.json()["ok"] is False
        assert answer.json()["result"]["content"][0]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("tool", [*DENIED_OVER_HTTP, "bash", "Write", "tool_call", "tool_search", "no_such_tool"])
async def test_what_acts_is_not_there_over_http(hall: Hall, tool: str) -> None:
    answer = await invoke(hall, tool, args={"command": "touch made", "path": "made", "content": "x"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert not (workspace(hall) / "made").exists()


async def test_the_configuration_widens_and_narrows_the_list(tmp_path: Path) -> None:
    config = {"gateway": {"tools": {"allow": ["write"], "deny": ["group:web"]}}, "tools": {"deny": ["grep"]}}
    async with open_hall(tmp_path, **config) as hall, hall.serving():
        answer = await invoke(hall, "write", args={"path": "made.txt", "content": "x"})
        assert answer.json()["ok"] is True
        assert (workspace(hall) / "made.txt").read_text() == "x"
        for refused in ("edit", "web_fetch", "grep"):
            answer = await invoke(hall, refused, args={"path": "made.txt"})
            assert answer.status_code == 404, refused


async def test_a_dry_run_only_judges(tmp_path: Path) -> None:
    async with open_hall(tmp_path, gateway={"tools": {"allow": ["write"]}}) as hall, hall.serving():
        answer = await invoke(hall, "write", args={"path": "made.txt", "content": "x"}, dryRun=True)
        given = answer.json()
        assert (given["ok"], given["dryRun"], given["effect"]) == (True, True, "allow")
        assert given["because"]
        assert not (workspace(hall) / "made.txt").exists()
        assert (await invoke(hall, "edit", dryRun=True)).status_code == 404


@pytest.mark.slow
async def test_what_needs_a_person_waits_for_one_and_is_refused_without(tmp_path: Path) -> None:
    config = {"gateway": {"tools": {"allow": ["exec"]}}, "tools": {"exec": {"ask": "always"}}}
    async with open_hall(tmp_path, **config) as hall, hall.serving():
        answer = await invoke(hall, "exec", args={"command": "touch made"})
        assert answer.json()["ok"] is False
        assert not (workspace(hall) / "made").exists()
        async with hall.client(asks=True), raw_socket(hall) as raw, anyio.create_task_group() as tasks:

            async def approve() -> None:
                while not (waiting := (await raw.result("approvals.list"))["approvals"]):
                    await anyio.sleep(0.01)
                await raw.result("approvals.resolve", id=waiting[0]["request"]["id"], verdict="allow-once")

            tasks.start_soon(approve)
            answer = await invoke(hall, "exec", args={"command": "touch made"})
        assert answer.json()["ok"] is True, answer.text
        assert (workspace(hall) / "made").exists()


async def test_calls_are_in_the_audit_log_under_the_tokens_name(hall: Hall) -> None:
    token = hall.token(Scope.WRITE, name="a program")
    assert (await invoke(hall, "ls", token)).json()["ok"]
    async with raw_socket(hall) as raw:
        records = (await raw.result("audit.log"))["entries"]
    found = [record for record in records if record["kind"] == "tool_invoked"]
    assert [record["who"] for record in found] == ["token:a program"]


@pytest.mark.parametrize(
    "body",
    [{}, {"tool": 7}, {"tool": "ls", "args": []}, {"tool": "ls", "more": 1}, {"tool": "ls", "sessionKey": "a b:"}],
)
async def test_a_request_that_makes_no_sense(hall: Hall, body: dict[str, Any]) -> None:
    async with hall.http() as client:
        assert (await client.post("/tools/invoke", json=body)).status_code == 400
