"""MCP servers: what configured but unused ones add to a one-shot turn, and a warm call beside the SDK's own."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import anyio
from mcp import Client, StdioServerParameters

from bench.measure import PYTHON, RETINUE, Sheet, process_cost
from bench.startup import make_home
from retinue.core.clock import SystemClock, random_id
from retinue.core.keys import AgentId
from retinue.security.secrets import Secrets
from retinue.testing.modelserver import running_server
from retinue.toolkit.mcp.catalog import CatalogStore, OfferedTool, ServerCatalog, digest_settings
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.mcp.settings import McpServerSettings, McpSettings
from retinue.toolkit.mcp.transports import TransportParts
from retinue.toolkit.processes.command_table import CommandTable

SERVERS, TOOLS = 5, 12
COLD_CALLS, WARM_CALLS = 20, 300
PROGRAM = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool()
def echo(text: str) -> str:
    return text


server.run(transport="stdio")
"""


def run(*, full: bool) -> None:
    sheet = Sheet("mcp_servers")
    with tempfile.TemporaryDirectory() as place, running_server(Path(place), ["Hello."] * 2_000) as port:
        _measure_unused(sheet, Path(place), port, 40 if full else 15)
    with tempfile.TemporaryDirectory() as place:
        anyio.run(_measure_calls, sheet, Path(place), WARM_CALLS * (5 if full else 1))
    sheet.save()


def _measure_unused(sheet: Sheet, place: Path, port: int, runs: int) -> None:
    """One-shot turns with and without servers; they alternate, because the machine changes its speed."""
    plain, configured = make_home(place / "plain", port), make_home(place / "configured", port)
    _configure(configured)
    argv = [RETINUE, "agent", "-m", "hello"]
    found: dict[Path, list[float]] = {plain: [], configured: []}
    for home in found:
        process_cost(argv, runs=2, env=_environment(home))
    for _ in range(runs):
        for home, costs in found.items():
            costs.append(process_cost(argv, runs=1, env=_environment(home)).cpu)
    added = (min(found[configured]) - min(found[plain])) * 1000
    note = f"{min(found[plain]) * 1000:.0f} ms without, {min(found[configured]) * 1000:.0f} ms with; best of {runs}"
    sheet.row(f"CPU that {SERVERS} unused servers add to a turn", added, "ms", note, goal=5)


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home.parent), "RETINUE_HOME": str(home)}


def _configure(home: Path) -> None:
    """Add servers that were listed before, with tools as large as usual ones."""
    config = json.loads((home / "retinue.json").read_text())
    servers = {f"server{number}": {"command": PYTHON, "args": ["-c", "pass"]} for number in range(SERVERS)}
    (home / "retinue.json").write_text(json.dumps({**config, "mcp": {"servers": servers}}))
    store = CatalogStore(home)
    properties = {
        f"parameter{number}": {"type": "string", "description": "What it is for. " * 5} for number in range(6)
    }
    tools = tuple(
        OfferedTool(f"tool{number}", "What it does. " * 15, {"type": "object", "properties": properties})
        for number in range(TOOLS)
    )
    for name, given in servers.items():
        settings = McpServerSettings(command=str(given["command"]), args=list(given["args"]))
        store.save(name, ServerCatalog(digest_settings(settings), SystemClock().now(), tools=tools))


async def _measure_calls(sheet: Sheet, place: Path, calls: int) -> None:
    """Calls of a warm server over standard streams, by the SDK's client and by Retinue's, in turn."""
    program = place / "server.py"
    program.write_text(PROGRAM)
    settings, agent, clock = (
        McpServerSettings(command=sys.executable, args=[str(program)]),
        AgentId("main"),
        SystemClock(),
    )
    started = StdioServerParameters(command=sys.executable, args=[str(program)])
    async with (
        Client(started) as client,
        CommandTable(clock, random_id) as commands,
        anyio.create_task_group() as tasks,
    ):
        parts = TransportParts(commands, Secrets({}), dict(os.environ), None)
        servers = McpServers(McpSettings(servers={"s": settings}), CatalogStore(place), clock, lambda _: parts)
        servers.attach(tasks, lambda: None)
        await servers.list_new(agent)
        (tool,) = servers.catalog("s").tools

        async def by_sdk() -> object:
            return await client.call_tool("echo", {"text": "hello"})

        async def by_retinue() -> object:
            return await servers.call("s", agent, tool, {"text": "hello"})

        sdk, own = await _time_both(by_sdk, by_retinue, calls)
        servers.close()
        tasks.cancel_scope.cancel()
    sheet.row("warm call by the SDK's client, p50", sdk, "ms")
    sheet.row("warm call by Retinue, p50", own, "ms", f"ratio {own / sdk:.2f}")
    sheet.row("what Retinue adds to a warm call", own - sdk, "ms", goal=2)


async def _time_both(
    first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]], calls: int
) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(COLD_CALLS + calls):
        for act, kept in zip((first, second), times, strict=True):
            began = time.perf_counter()
            await act()
            if number >= COLD_CALLS:
                kept.append((time.perf_counter() - began) * 1000)
    return median(times[0]), median(times[1])
