"""The official conformance suite plays servers to the client, which is used as a home uses it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from retinue.core.clock import random_id
from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId
from retinue.runtime.agents.mcp import make_mcp_servers
from retinue.runtime.home import load_home
from retinue.runtime.inspect.mcp import sign_in
from retinue.security.secrets import Secrets
from retinue.storage.home_paths import HomePaths
from retinue.toolkit.mcp.catalog import OfferedTool
from retinue.toolkit.mcp.connection import SignInNeeded
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.processes.command_table import CommandTable
from tests.toolkit.mcp.programs import check_outcome, needs_programs, run_suite
from tests.toolkit.mcp.test_sign_in import visit

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs_programs]

MAIN = AgentId("main")
RELAY = Path(__file__).with_name("conformance_relay.py")

NO_QUESTIONS = "servers cannot ask people for input: nobody may be there, and they could ask for secrets"
NO_EXTENSION = "an extension of the protocol for services without people, which no known personal server uses"
EXPECTED = {
    "elicitation-sep1034-client-defaults": NO_QUESTIONS,
    "sep-2322-client-request-state": NO_QUESTIONS,
    "auth/client-credentials-jwt": NO_EXTENSION,
    "auth/client-credentials-basic": NO_EXTENSION,
    "auth/enterprise-managed-authorization": NO_EXTENSION,
    "auth/wif-jwt-bearer": NO_EXTENSION,
    "auth/dpop": "an extension of the protocol that the SDK does not have",
    "auth/dpop-nonce": "an extension of the protocol that the SDK does not have",
}

EXAMPLES = {"string": "text", "integer": 2, "number": 3, "boolean": True, "array": [], "object": {}}


class ScenarioClient:
    """One scenario: a home with the suite's server, signed in to if it demands that, and all tools called once."""

    def __init__(self, folder: Path, url: str, scenario: str, context: Mapping[str, Any]) -> None:
        server: dict[str, Any] = {"url": url, "requestTimeoutMs": 15_000}
        if scenario.startswith("auth/"):
            server |= {"auth": "oauth", "oauth": self._client_settings(scenario, context)}
        paths = HomePaths(folder)
        paths.path.mkdir()
        paths.config_file.write_text(json.dumps({"mcp": {"servers": {"s": server}}}))
        self._home = load_home(paths)
        self._signs_in = "auth" in server
        self._given = {call["name"]: call["arguments"] for call in context.get("toolCalls", ())}

    @staticmethod
    def _client_settings(scenario: str, context: Mapping[str, Any]) -> dict[str, str]:
        if scenario == "auth/basic-cimd":
            return {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
        if "client_secret" in context:
            return {"clientId": context["client_id"], "clientSecret": context["client_secret"]}
        return {}

    async def run(self) -> str:
        """Return a text that begins with `ok`, or why the server cannot be used."""
        if self._signs_in and (problem := (await sign_in(self._home, "s", visit)).problem):
            return problem
        async with CommandTable(self._home.clock, random_id) as commands, anyio.create_task_group() as tasks:
            secrets = Secrets(self._home.environment, self._home.redactor)
            servers = make_mcp_servers(self._home, commands, secrets)
            assert servers is not None
            servers.attach(tasks, lambda: None)
            await servers.list_new(MAIN)
            told = [await self._call(servers, tool) for tool in servers.catalog("s").tools]
            servers.close()
            tasks.cancel_scope.cancel()
        return "\n".join(("ok", *told))

    async def _call(self, servers: McpServers, tool: OfferedTool) -> str:
        properties = tool.schema.get("properties", {})
        arguments = {name: EXAMPLES.get(schema.get("type"), "text") for name, schema in properties.items()}
        if tool.name == "json_schema_echo":
            arguments = {"schema": servers.catalog("s").tools[0].schema}
        arguments = self._given.get(tool.name, arguments)
        try:
            return str((await servers.call("s", MAIN, tool, arguments)).content)
        except SignInNeeded:  # the owner does what the message says, and the tool is called again
            problem = (await sign_in(self._home, "s", visit)).problem
            return problem or str((await servers.call("s", MAIN, tool, arguments)).content)
        except ToolFailed as error:
            return str(error)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_client_follows_the_protocol(tmp_path: Path, revision: str) -> None:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            received = b""
            while not received.endswith(b"\n"):
                received += await stream.receive()
            asked = json.loads(received)
            context = json.loads(asked["context"] or "{}")
            client = ScenarioClient(tmp_path / uuid.uuid4().hex, asked["url"], asked["scenario"], context)
            await stream.send((await client.run()).encode())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            command = f"{sys.executable} -IS {RELAY} {port}"
            outcome = await run_suite("client", revision, tmp_path / "results", command=command)
            tasks.cancel_scope.cancel()
    check_outcome(outcome, EXPECTED)
    assert {"tools_call", "auth/scope-step-up", "auth/pre-registration", "auth/basic-cimd"} <= outcome.passed
    assert len(outcome.passed) >= 18
