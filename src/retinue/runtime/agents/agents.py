"""An agent that is ready to answer, and the services that all agents share under one configuration."""

from __future__ import annotations

import msgspec

from retinue.context.engine import ContextEngine
from retinue.hooks.bus import HookBus
from retinue.providers.registry import Providers
from retinue.runtime.agents.agent import AgentWorkspace
from retinue.runtime.agents.tools import HomeTools
from retinue.runtime.approvals.approvals import Permissions
from retinue.runtime.home import Home
from retinue.runtime.memory.pool import MemoryPool
from retinue.runtime.models.access import ModelAccess
from retinue.runtime.services import Services
from retinue.security.secrets import Secrets
from retinue.sessions.store import SessionStore


class HomeServices(msgspec.Struct, frozen=True, eq=False):
    """The services that are created from one `Home`; a reload creates new ones."""

    home: Home
    secrets: Secrets
    providers: Providers
    bus: HookBus
    memories: MemoryPool
    permissions: Permissions
    tools: HomeTools


class Agent(msgspec.Struct, frozen=True, eq=False):
    """One agent with its workspace open; all its sessions use it."""

    services: Services
    shared: HomeServices
    workspace: AgentWorkspace
    access: ModelAccess
    store: SessionStore
    engine: ContextEngine

    @property
    def home(self) -> Home:
        """The home and configuration that the agent was opened with."""
        return self.shared.home
