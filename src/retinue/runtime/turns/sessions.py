"""The open agents of a home and the runners of their sessions."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio

from retinue.context.engine import ContextEngine, DefaultEngine, EngineParts, FallbackEngine
from retinue.core.keys import AgentId, SessionKey
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.runtime.agents.agent import Agent, GatewayControl, HomeServices, Services
from retinue.runtime.agents.workspace import AgentWorkspace, open_sessions, open_workspace, seed_agent
from retinue.runtime.home import Home
from retinue.runtime.models import ModelAccess, open_model_access
from retinue.runtime.turns.runner import SessionRunner

log = logging.getLogger(__name__)

DEFAULT_ENGINES = ("default", "legacy")
"""Names of the built-in context engine; the second is OpenClaw's."""
MAX_RUNNERS = 500
"""How many session runners are kept; a session that was dropped is opened again when it continues."""


class Sessions:
    """Opens agents and sessions when they are first used, under the current configuration.

    `shared` is replaced by a reload. A turn that runs keeps the agent it began with.
    """

    shared: HomeServices
    gateway: GatewayControl | None = None
    """Controls the gateway of this process, if there is one."""

    def __init__(self, services: Services, *, extra_skills: tuple[Path, ...] = ()) -> None:
        self.services = services
        self.extra_skills = extra_skills
        self._agents: dict[AgentId, Agent] = {}
        self._runners: dict[SessionKey, SessionRunner] = {}
        self._replaced = anyio.Event()

    @property
    def home(self) -> Home:
        """The home under the current configuration."""
        return self.shared.home

    def agent(self, agent: AgentId, *, seed: bool = True) -> Agent:
        """Return an agent with its workspace open; with `seed`, files that the workspace lacks are created first."""
        found = self._agents.get(agent)
        if found is None:
            if seed:
                seed_agent(self.home, agent)
            workspace = open_workspace(self.home, agent, extra_skills=self.extra_skills)
            found = self._agents[agent] = Agent(
                services=self.services,
                shared=self.shared,
                workspace=workspace,
                access=self.model_access(agent),
                store=open_sessions(self.home, agent),
                engine=self._make_engine(workspace),
            )
        return found

    def _make_engine(self, workspace: AgentWorkspace) -> ContextEngine:
        """Return the context engine of the plugin slot, with the default engine as its fallback."""
        settings = workspace.settings
        parts = EngineParts(settings.compaction, settings.context_pruning, self.shared.secrets.redactor)
        default = DefaultEngine(parts.compaction, parts.pruning, redact=parts.redact)
        wanted = self.home.config.plugins.slots.context_engine
        factory = self.home.registry.engines.get(wanted) if wanted else None
        if factory is None:
            if wanted is not None and wanted not in DEFAULT_ENGINES:
                log.warning("there is no context engine '%s'; the default one is used", wanted)
            return default

        async def on_failure(text: str) -> None:
            log.warning("%s", text)

        try:
            engine = call_contained(lambda: factory.make.load()(parts))
        except PluginError as error:
            self.home.registry.switch_off(factory.plugin, f"its context engine '{wanted}' cannot be made: {error}")
            return default
        return FallbackEngine(engine, default, on_failure)

    def model_access(self, agent: AgentId) -> ModelAccess:
        """Return the models of an agent; this does not open its workspace."""
        if agent in self._agents:
            return self._agents[agent].access
        return open_model_access(self.home, agent, self.shared.providers, self.shared.secrets)

    def skill_programs(self, agent: AgentId) -> frozenset[str]:
        """Return the programs that the skills of an agent require."""
        return self.agent(agent).workspace.skill_programs()

    def runner(self, key: SessionKey, *, seed: bool = True) -> SessionRunner:
        """Return the runner of a session. It uses a new configuration when no turn runs."""
        agent = self.agent(key.agent, seed=seed)
        found = self._runners.pop(key, None)
        if found is None or (found.parts is not agent and not found.running):
            found = SessionRunner(agent, key)
        self._runners[key] = found
        if len(self._runners) > MAX_RUNNERS:
            idle = next((key for key, each in self._runners.items() if not (each.busy or each.running)), None)
            if idle is not None:
                del self._runners[idle]
        return found

    def replace(self, shared: HomeServices) -> tuple[tuple[Agent, ...], tuple[SessionRunner, ...]]:
        """Use the services of a new configuration; return the agents and runners of the previous one."""
        before = tuple(self._agents.values()), tuple(self._runners.values())
        self.shared = shared
        self._agents = {}
        replaced, self._replaced = self._replaced, anyio.Event()
        replaced.set()
        return before

    def next_reload(self) -> anyio.Event:
        """Return an event that is set when a new configuration is used."""
        return self._replaced

    async def follow_memory(self, agent: AgentId) -> None:
        """Keep the memory index of an agent up to date until cancelled, also across reloads."""
        while True:
            replaced = self._replaced
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.shared.memories.follow, self.agent(agent).workspace)
                await replaced.wait()
                tasks.cancel_scope.cancel()

    def close_agents(self) -> None:
        """Flush the sessions and close the workspaces."""
        for agent in self._agents.values():
            agent.store.settle_all()
            agent.workspace.close()
