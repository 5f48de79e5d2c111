"""Retinue as an MCP server, used by the client of the official SDK: over HTTP, and by `retinue mcp serve`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from retinue.core.errors import RetinueError
from retinue.gateway.mcp.server import make_server
from retinue.gateway.mcp.tools import TOOLS
from retinue.testing.replies import calls, says
from retinue.wire.frames import Method
from retinue.wire.protocol import Scope, with_implied
from tests.gateway.conftest import PATIENCE, Hall, gateway_process, open_hall, raw_socket

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def over_http(hall: Hall, *scopes: Scope, mode: str = "auto") -> AsyncIterator[Client]:
    async with (
        hall.http(hall.token(*scopes, name="program")) as http,
        Client(streamable_http_client(f"{hall.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def result_of(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    result: dict[str, Any] = found.structured_content
    return result


async def failure_of(client: Client, tool: str, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    return str(found.content[0].text)  # type: ignore[union-attr]


async def names_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_conversations_memory_and_sub_agents_are_reached_over_http(hall: Hall, mode: str) -> None:
    notes = hall.home.workspace / "memory"
    notes.mkdir(parents=True)
    (notes / "garden.md").write_text("# Garden\n\nThe fennel grows beside the shed.\n")
    async with over_http(hall, Scope.WRITE, mode=mode) as client:
        assert client.instructions is not None
        assert "messages_wait" in client.instructions
        hall.model.push(says("Forty-two."))
        sent = await result_of(client, "messages_send", message="What is it?", sessionKey="work")
        answer = (await result_of(client, "messages_wait", runId=sent["runId"], timeoutMs=60_000))["outbound"]
        assert (answer["text"], answer["status"]) == ("Forty-two.", "ok")
        read = await result_of(client, "messages_read", sessionKey="work")
        assert [(each["role"], each["text"]) for each in read["messages"]] == [
            ("user", "What is it?"),
            ("assistant", "Forty-two."),
        ]
        listed = await result_of(client, "conversations_list")
        assert [each["key"] for each in listed["sessions"]] == [sent["sessionKey"]]
        assert (await result_of(client, "conversation_get", sessionKey="work"))["session"]["messages"] == 2
        assert not (await result_of(client, "turn_stop", sessionKey="work"))["stopped"]
        assert [each["id"] for each in (await result_of(client, "agents_list"))["agents"]] == ["main"]

        [hit] = (await result_of(client, "memory_search", query="fennel"))["hits"]
        assert hit["path"] == "memory/garden.md"
        assert hit["origin"] == "owner"
        excerpt = await result_of(client, "memory_get", path=hit["path"], start=3)
        assert excerpt["text"].strip() == "The fennel grows beside the shed."
        assert "no note" in await failure_of(client, "memory_get", path="memory/other.md")

        hall.model.push(says("Three of them."), says("Noted."))
        started = await result_of(client, "subagents_start", task="Count the sheds.", label="sheds", sessionKey="work")
        run = started["subagent"]["runId"]
        with anyio.fail_after(PATIENCE):
            while not (child := (await result_of(client, "subagents_list", sessionKey="work"))["subagents"][0])[
                "endedAt"
            ]:
                await anyio.sleep(0.05)
        assert (child["runId"], child["text"], child["untrusted"]) == (run, "Three of them.", True)
        assert not (await result_of(client, "subagents_cancel", runId=run))["cancelled"], "it had ended"


@pytest.mark.slow
async def test_a_token_decides_which_tools_there_are(hall: Hall) -> None:
    async with over_http(hall, Scope.READ) as reader:
        assert await names_of(reader) == {tool.name for tool in TOOLS if tool.scope is Scope.READ}
        for tool, arguments in (
            ("messages_send", {"message": "hi"}),
            ("turn_stop", {}),
            ("subagents_start", {"task": "x"}),
            ("subagents_cancel", {"runId": "x"}),
        ):
            assert "the scope 'write'" in await failure_of(reader, tool, **arguments)
        for tool, arguments in (("approvals_list", {}), ("approvals_answer", {"id": "x", "verdict": "allow-once"})):
            assert "the scope 'approve'" in await failure_of(reader, tool, **arguments)
    assert hall.model.model_requests == []
    for scope in Scope:
        async with over_http(hall, scope) as client:
            assert await names_of(client) == {tool.name for tool in TOOLS if tool.scope in with_implied([scope])}


@pytest.mark.slow
async def test_a_client_with_the_scope_answers_approval_requests(tmp_path: Path) -> None:
    tools = {"exec": {"ask": "always"}}
    async with (
        open_hall(tmp_path, tools=tools) as hall,
        hall.serving(),
        hall.client(asks=True),
        raw_socket(hall) as owner,
        over_http(hall, Scope.APPROVE) as approver,
    ):
        hall.model.push(calls("exec", command="touch made"), says("Done."))
        sent = await owner.result("agent", message="make it", idempotencyKey="1")
        with anyio.fail_after(PATIENCE):
            while not (waiting := (await result_of(approver, "approvals_list"))["approvals"]):
                await anyio.sleep(0.01)
        [pending] = waiting
        assert "touch made" in str(pending["request"])
        answer = {"id": pending["request"]["id"], "verdict": "allow-once", "binding": pending["request"]["binding"]}
        await result_of(approver, "approvals_answer", **answer)
        assert "already" in await failure_of(approver, "approvals_answer", **answer)
        assert (await owner.result("agent.wait", runId=sent["runId"]))["outbound"]["text"] == "Done."
        assert (hall.home.workspace / "made").exists()
        records = (await owner.result("audit.log"))["entries"]
        assert any("program" in str(record["who"]) and "approv" in record["kind"] for record in records)


class _BrokenTexts:
    """A gateway with texts that contain half of a character."""

    scopes = frozenset(Scope)

    async def call(self, method: Method[Any, Any], params: dict[str, Any]) -> dict[str, Any]:
        if params:
            raise RetinueError("wrong: \ud800")
        return {"agents": ["é \ud800"]}


async def test_half_of_a_character_is_replaced() -> None:
    async with Client(make_server(lambda _context: _BrokenTexts())) as client:
        assert (await result_of(client, "agents_list"))["agents"] == ["é ?"]
        assert await failure_of(client, "conversation_get", agent="x") == "wrong: ?"


async def test_wrong_calls_say_what_is_wrong(hall: Hall) -> None:
    async with over_http(hall, Scope.WRITE) as client:
        assert "no parameter 'mesage'" in await failure_of(client, "messages_send", mesage="hi")
        assert "Expected `str`" in await failure_of(client, "messages_send", message=7)
        assert "message" in await failure_of(client, "messages_send")
        assert "no agent" in (await failure_of(client, "conversations_list", agent="nobody")).lower()
        assert "not in the inbox" in await failure_of(client, "messages_wait", runId="nothing")
        with pytest.raises(MCPError, match="no tool 'rm'"):
            await client.call_tool("rm", {})


async def test_the_endpoint_has_the_guards_of_all_others(hall: Hall) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as stranger:
        refused = await stranger.post("/mcp", json=body, headers=accept)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        wrong = await stranger.post("/mcp", json=body, headers={**accept, "authorization": "Bearer wrong"})
        assert wrong.status_code == 401
    async with hall.http() as http:
        for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            assert (await http.post("/mcp", json=body, headers={**accept, **headers})).status_code == 403
        assert (await http.get("/mcp", headers=accept)).status_code == 405
        assert (await http.post("/mcp", json=body, headers=accept)).status_code == 200
        large = await http.post(
            "/mcp", content=b"[" + b" " * 9_000_000 + b"]", headers={"content-type": "application/json"}
        )
        assert large.status_code == 413


@pytest.mark.slow
async def test_a_program_gets_the_gateway_on_its_standard_streams(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        async with gateway_process(hall):
            command = ["-m", "retinue", "--home", str(hall.home.path), "mcp", "serve"]

            def started(*more: str) -> StdioServerParameters:
                return StdioServerParameters(command=sys.executable, args=[*command, *more], env=hall.environment)

            async with Client(started(), read_timeout_seconds=PATIENCE) as client:
                assert await names_of(client) == {t.name for t in TOOLS if t.scope in with_implied([Scope.WRITE])}
                hall.model.push(says("Hello, program."))
                sent = await result_of(client, "messages_send", message="/whoami")
                told = (await result_of(client, "messages_wait", runId=sent["runId"]))["outbound"]["text"]
                assert "You are mcp (" in told, "it does not act as the owner"
                assert "the scope 'approve'" in await failure_of(client, "approvals_list")
            async with Client(started("--scope", "admin"), read_timeout_seconds=PATIENCE) as client:
                assert await names_of(client) == {tool.name for tool in TOOLS}
                sent = await result_of(client, "messages_send", message="/whoami")
                told = (await result_of(client, "messages_wait", runId=sent["runId"]))["outbound"]["text"]
                assert "the owner" in told
