"""The servers of a home: their catalogs, and a connection for each agent that uses one."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId
from retinue.toolkit.mcp.catalog import CatalogStore, OfferedTool, ServerCatalog, is_selected
from retinue.toolkit.mcp.settings import McpServerSettings, McpSettings

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from retinue.toolkit.mcp.connection import McpConnection
    from retinue.toolkit.mcp.transports import TransportParts

log = logging.getLogger(__name__)

NOT_INSTALLED = "MCP servers need the package `mcp`. Install it with `pip install 'retinue[mcp]'`."
RETRY_AFTER = timedelta(minutes=5)
"""How long after a failure a server that was never listed is tried again without being asked for."""


class ServerState(Struct, frozen=True):
    """A server as `retinue mcp list` shows it."""

    name: str
    transport: str
    state: str
    """`ready`, `new`, `failed`, `sign-in needed` or `disabled`."""
    tools: tuple[str, ...]
    reason: str = ""


def describe_server(name: str, settings: McpServerSettings, catalog: ServerCatalog) -> ServerState:
    """Return the state of a server from what is stored about it."""
    tools = tuple(tool.name for tool in catalog.tools if is_selected(tool.name, settings))
    if not settings.enabled:
        state = "disabled"
    elif catalog.needs_sign_in:
        state = "sign-in needed"
    elif catalog.problem:
        state = "failed"
    else:
        state = "ready" if catalog.listed_at is not None else "new"
    return ServerState(name, settings.transport_name, state, tools, catalog.problem)


def is_installed() -> bool:
    """Return whether the SDK is installed."""
    return importlib.util.find_spec("mcp") is not None


class McpServers:
    """The servers of one configuration. `on_change` is called when the tools of a server are no longer the same."""

    def __init__(
        self, settings: McpSettings, store: CatalogStore, clock: Clock, make_parts: Callable[[str], TransportParts]
    ) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self._make_parts = make_parts
        self._catalogs: dict[str, ServerCatalog] = {}
        self._connections: dict[tuple[str, AgentId], McpConnection] = {}
        self._tasks: TaskGroup | None = None
        self._on_change: Callable[[], None] = lambda: None

    @property
    def enabled(self) -> Mapping[str, McpServerSettings]:
        """The servers that are used, in the order of their names, so that the prompt is stable."""
        return {name: each for name, each in sorted(self.settings.servers.items()) if each.enabled}

    def catalog(self, server: str) -> ServerCatalog:
        """Return what is known of a server."""
        found = self._catalogs.get(server)
        if found is None:
            found = self._catalogs[server] = self.store.load(server, self.settings.servers[server])
        return found

    def attach(self, tasks: TaskGroup, on_change: Callable[[], None]) -> None:
        """Set the tasks that hold connections, and whom to tell about changed tools."""
        self._tasks = tasks
        self._on_change = on_change

    async def list_new(self, agent: AgentId) -> None:
        """Connect to each server that was never listed, so that its tools are known; failures are stored."""
        now = self.clock.now()
        new = [
            name
            for name in self.enabled
            if (known := self.catalog(name)).listed_at is None
            and (known.problem_at is None or now - known.problem_at > RETRY_AFTER)
        ]
        if new:
            async with anyio.create_task_group() as group:
                for name in new:
                    group.start_soon(self._try_to_list, name, agent)

    async def _try_to_list(self, server: str, agent: AgentId) -> None:
        from retinue.toolkit.mcp.connection import SignInNeeded

        try:
            async with self.connection(server, agent).use():
                pass
        except ToolFailed as error:
            log.warning("%s", error)
            needs_sign_in = isinstance(error, SignInNeeded)
            settings, now = self.settings.servers[server], self.clock.now()
            self.store.save_problem(server, settings, str(error), now, needs_sign_in=needs_sign_in)
            self._catalogs.pop(server, None)

    def connection(self, server: str, agent: AgentId) -> McpConnection:
        """Return the connection of an agent to a server, which its first use opens."""
        from retinue.toolkit.mcp.connection import McpConnection, Target

        if self._tasks is None:
            raise ToolFailed(f"The MCP server {server} cannot be used here.")
        if server not in self.enabled:
            raise ToolFailed(f"There is no MCP server '{server}'. There are: {', '.join(self.enabled)}.")
        if not is_installed():
            raise ToolFailed(NOT_INSTALLED)
        found = self._connections.get((server, agent))
        if found is None:
            target = Target(server, self.settings.servers[server], agent)
            found = McpConnection(target, partial(self._make_parts, server), self.clock, self._tasks, self._keep)
            self._connections[server, agent] = found
        return found

    async def call(self, server: str, agent: AgentId, tool: OfferedTool, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises `ToolFailed` if the server no longer offers it as the model has read it."""
        async with self.connection(server, agent).use() as opened:
            digest = opened.offered.get(tool.name)
            if digest is None:
                raise ToolFailed(f"The MCP server {server} no longer has the tool '{tool.name}'.")
            if digest != tool.digest:
                raise ToolFailed(
                    f"The MCP server {server} has changed the tool '{tool.name}'. Look it up again before you call it."
                )
            return await opened.client.call_tool(tool.name, arguments)

    def _keep(self, server: str, catalog: ServerCatalog) -> None:
        before = self.catalog(server)
        self._catalogs[server] = catalog
        if replace(before, listed_at=catalog.listed_at) != catalog:
            self.store.save(server, catalog)
        if before.tools != catalog.tools:
            self._on_change()

    def is_connected(self, server: str) -> bool:
        """Return whether a connection to a server is open."""
        return any(each.is_open for (name, _), each in self._connections.items() if name == server)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
