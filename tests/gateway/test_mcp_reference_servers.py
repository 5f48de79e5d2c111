"""The official reference servers in turns of a sandboxed agent: a scripted model looks up and calls their tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.replies import calls, says
from tests.gateway.conftest import Hall, RawSocket, open_hall, raw_socket
from tests.gateway.test_mcp_servers import say, tell
from tests.toolkit.mcp.programs import FOLDER, find_node, needs_programs

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs_programs]


def configure(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    script = FOLDER / "node_modules" / ".bin" / f"mcp-server-{name}"
    return {"command": str(find_node()), "args": [str(script), *arguments], "readOnlyTools": ["*"], **more}


class Turns:
    """A gateway with the three servers, and the owner's connection to it."""

    def __init__(self, hall: Hall, raw: RawSocket) -> None:
        self.hall = hall
        self.raw = raw

    async def call(self, server: str, tool: str, **arguments: Any) -> str:
        """Return what the model read of a tool that it called in a turn."""
        name = f"mcp__{server}__{tool}"
        return await self.use("tool_call", name=name, arguments=arguments)

    async def use(self, tool: str, **arguments: Any) -> str:
        self.hall.model.push(calls(tool, **arguments), says("Seen."))
        assert await say(self.raw, f"{len(self.hall.model.model_requests)}: {tool}") == "Seen."
        return tell(self.hall)


@pytest.fixture
async def turns(tmp_path: Path) -> AsyncIterator[Turns]:
    async with open_hall(tmp_path) as hall:
        workspace = hall.home.path / "workspace"
        servers = {
            "everything": configure("everything", env={"GREETING": "hello"}),
            "files": configure("filesystem", str(workspace)),
            "memory": configure("memory", env={"MEMORY_FILE_PATH": str(workspace / "graph.jsonl")}),
        }
        sandbox = {"mode": "all", "workspaceAccess": "rw"}
        hall.config = {
            "mcp": {"servers": servers},
            "agents": {"defaults": {"model": "test/test-model", "sandbox": sandbox}},
            "tools": {"sandbox": {"tools": {"allow": ["*"]}}},
        }
        async with hall.serving(), raw_socket(hall) as raw:
            yield Turns(hall, raw)


async def test_the_reference_servers_work_in_turns_of_a_sandboxed_agent(turns: Turns) -> None:
    workspace = turns.hall.home.path / "workspace"
    found = await turns.use("tool_search", query="sum of two numbers")
    assert "mcp__everything__get-sum" in found

    assert "Echo: Grüße" in await turns.call("everything", "echo", message="Grüße")
    assert "is 42" in await turns.call("everything", "get-sum", a=20, b=22)
    assert 'is not of type "number"' in await turns.call("everything", "get-sum", a="x", b=1)
    structured = await turns.call("everything", "get-structured-content", location="Chicago")
    assert "temperature" in structured
    environment = await turns.call("everything", "get-env")
    assert "GREETING" in environment
    assert "secret-key-0123456789" not in environment
    assert "[image left out: this model reads only text]" in await turns.call("everything", "get-tiny-image")
    offers = await turns.use("mcp_resources", server="everything")
    assert "prompt " in offers
    assert "resource " in offers
    uri = offers.split("resource ", 1)[1].split(": ", 1)[0]
    assert "EXTERNAL_UNTRUSTED_CONTENT" in await turns.use("mcp_resources", server="everything", action="read", uri=uri)

    path = str(workspace / "plan.md")
    assert "Successfully wrote" in await turns.call("files", "write_file", path=path, content="Buy fennel.\n")
    assert (workspace / "plan.md").read_text() == "Buy fennel.\n"
    assert "Buy fennel." in await turns.call("files", "read_text_file", path=path)
    assert "denied" in await turns.call("files", "read_text_file", path=str(turns.hall.home.config_file))

    entity = {"name": "fennel", "entityType": "plant", "observations": ["grows beside the shed"]}
    assert "fennel" in await turns.call("memory", "create_entities", entities=[entity])
    assert "beside the shed" in await turns.call("memory", "search_nodes", query="fennel")
    assert "fennel" in (workspace / "graph.jsonl").read_text()
