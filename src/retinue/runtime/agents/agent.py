"""An agent that is ready to answer, and the services of the process and of one configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from retinue.context.engine import ContextEngine
from retinue.dispatch.inbox import Inbox
from retinue.dispatch.lanes import Lanes
from retinue.dispatch.outbox import Outbox
from retinue.hooks import HookBus
from retinue.providers.registry import Providers
from retinue.runtime.agents.tools import HomeTools
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.runtime.approvals import Permissions
from retinue.runtime.home import Home
from retinue.runtime.memory.pool import MemoryPool
from retinue.runtime.models import ModelAccess
from retinue.runtime.telemetry.tracing import Tracer
from retinue.security.secrets import Secrets
from retinue.sessions.protocol import StoredSessions
from retinue.storage.database import Database
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.processes.command_table import CommandTable
from retinue.tools.approvals.broker import ApprovalBroker


class Services(msgspec.Struct, frozen=True, eq=False):
    """The services of one process."""

    database: Database
    job_database: Database
    """The database with the jobs: the home's own, unless `cron.store` names another one."""
    inbox: Inbox
    outbox: Outbox
    lanes: Lanes
    commands: CommandTable
    approvals: ApprovalBroker
    tracer: Tracer


class GatewayControl(msgspec.Struct, frozen=True):
    """The interface with which an agent reloads the configuration or restarts the gateway of its process."""

    apply: Callable[[], Awaitable[Mapping[str, Any]]]
    restart: Callable[[str], None]


class HomeServices(msgspec.Struct, frozen=True, eq=False):
    """The services that are created from one `Home`; a reload creates new ones."""

    home: Home
    secrets: Secrets
    providers: Providers
    bus: HookBus
    memories: MemoryPool
    permissions: Permissions
    tools: HomeTools
    mcp: McpServers | None = None


class Agent(msgspec.Struct, frozen=True, eq=False):
    """One agent with its workspace open; all its sessions use it."""

    services: Services
    shared: HomeServices
    workspace: AgentWorkspace
    access: ModelAccess
    store: StoredSessions
    engine: ContextEngine

    @property
    def home(self) -> Home:
        """The home and configuration that the agent was opened with."""
        return self.shared.home
