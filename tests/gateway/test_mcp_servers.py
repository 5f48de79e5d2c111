"""MCP servers in real turns: a scripted model looks their tools up and calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.replies import calls, says
from tests.gateway.conftest import Hall, open_hall, raw_socket
from tests.toolkit.mcp.test_connection import SERVER

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def tell(hall: Hall) -> str:
    """The result of the last call, as the model read it."""
    return str(hall.model.model_requests[-1].json["messages"][-1]["content"])


async def say(raw: Any, text: str) -> str:
    accepted = await raw.result("agent", message=text, idempotencyKey=text)
    outcome = await raw.result("agent.wait", runId=accepted["runId"])
    told: str = outcome["outbound"]["text"]
    return told


async def test_a_turn_finds_and_calls_a_tool_of_a_server(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        server = {"command": sys.executable, "args": [str(SERVER), "good"], "env": {"OUTSIDE": str(tmp_path / "home")}}
        hall.config = {"mcp": {"servers": {"sample": server, "broken": {"command": "no-such-program"}}}}
        async with hall.serving(), raw_socket(hall) as raw:
            hall.model.push(
                calls("tool_search", query="add numbers"),
                calls("tool_call", name="mcp__sample__add", arguments={"a": 20, "b": 22}),
                says("42."),
            )
            assert await say(raw, "add them") == "42."
            offered = json.dumps(hall.model.model_requests[0].json["tools"])
            assert "mcp__sample" not in offered, "the schemas are looked up"
            looked_up = str(hall.model.model_requests[1].json["messages"][-1]["content"])
            assert "From the MCP server sample: Add two numbers." in looked_up
            assert "42" in tell(hall)
            assert "From: MCP server sample" in tell(hall)

            hall.model.push(calls("tool_call", name="mcp__sample__where", arguments={}), says("Refused."))
            await say(raw, "and where?")
            assert "approv" in tell(hall), "after untrusted text, a tool of unknown effect needs approval"

            hall.write_config(**hall.config, tools={"deny": ["mcp__sample__*"]})
            await raw.result("config.apply")
            hall.model.push(calls("tool_call", name="mcp__sample__add", arguments={"a": 1, "b": 1}), says("No."))
            assert await say(raw, "again") == "No."
            assert "no tool" in tell(hall).lower()


async def test_a_server_runs_in_the_sandbox_of_commands(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        secret = tmp_path / "outside"
        secret.mkdir()
        server = {"command": sys.executable, "args": [str(SERVER), "good"], "env": {"OUTSIDE": str(secret)}}
        agents = {"defaults": {"model": "test/test-model", "sandbox": {"mode": "all", "workspaceAccess": "rw"}}}
        hall.config = {
            "mcp": {"servers": {"sample": server}},
            "agents": agents,
            "tools": {"sandbox": {"tools": {"allow": ["*"]}}},
        }
        async with hall.serving(), raw_socket(hall) as raw:
            hall.model.push(calls("tool_call", name="mcp__sample__where", arguments={}), says("There."))
            await say(raw, "where?")
            assert '"outside": false' in tell(hall)
            assert str(hall.home.path / "workspace") in tell(hall)


async def test_a_program_of_a_project_sees_the_modules_beside_its_own_in_the_sandbox(tmp_path: Path) -> None:
    modules = tmp_path / "project" / "node_modules"
    for folder in (".bin", "sample", "needed"):
        (modules / folder).mkdir(parents=True)
    (modules / "needed" / "module.txt").write_text("needed")
    secret = tmp_path / "project" / ".env"
    secret.write_text("KEY=1")
    script = modules / "sample" / "server.py"
    needed = "open(__import__('pathlib').Path(__file__).resolve().parents[1] / 'needed' / 'module.txt').close()"
    imports, rest = SERVER.read_text().split("MODE = ", 1)
    script.write_text(f"#!{sys.executable}\n{imports}\n{needed}\nMODE = {rest}")
    script.chmod(0o755)
    (modules / ".bin" / "sample-server").symlink_to("../sample/server.py")
    async with open_hall(tmp_path) as hall:
        server = {"command": str(modules / ".bin" / "sample-server"), "readPaths": [sys.prefix, sys.base_prefix]}
        hall.config = {
            "mcp": {"servers": {"sample": {**server, "env": {"OUTSIDE": str(secret)}}}},
            "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "all", "workspaceAccess": "rw"}}},
            "tools": {"sandbox": {"tools": {"allow": ["*"]}}},
        }
        async with hall.serving(), raw_socket(hall) as raw:
            hall.model.push(calls("tool_call", name="mcp__sample__where", arguments={}), says("There."))
            await say(raw, "where?")
            assert '"outside": false' in tell(hall)
