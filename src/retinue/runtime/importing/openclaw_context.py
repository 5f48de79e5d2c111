"""What all steps of importing an OpenClaw home share."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, parse_agent_id
from retinue.runtime.home import Home
from retinue.runtime.importing.openclaw_home import OpenClawAgent, OpenClawHome
from retinue.runtime.importing.plan import ImportLedger

KINDS = ("config", "mcp", "channels", "credentials", "workspaces", "skills", "hooks", "jobs", "approvals", "sessions")
"""What can be chosen with `--include`."""


class ImportChoices(Struct, frozen=True):
    """What the owner chose: the kinds, one agent or all, and whether credentials are copied."""

    kinds: frozenset[str] = frozenset(KINDS)
    agent: str | None = None
    with_credentials: bool = False


class ImportContext:
    """The source, the home, and what was chosen; `folder` is where the report and other files go.

    `home` is replaced when a step changes the configuration.
    """

    def __init__(self, source: OpenClawHome, home: Home, choices: ImportChoices, folder: Path, scratch: Path) -> None:
        self.source = source
        self.home = home
        self.choices = choices
        self.folder = folder
        self.scratch = scratch
        self.ledger = ImportLedger(folder / "imported.json")
        self.agents = self._choose_agents()

    def _choose_agents(self) -> tuple[OpenClawAgent, ...]:
        agents, wanted = self.source.agents, self.choices.agent
        chosen = tuple(agent for agent in agents if wanted is None or agent.id.lower() == wanted.lower())
        if not chosen:
            raise UsageError(f"There is no agent '{wanted}'. Agents: {', '.join(agent.id for agent in agents)}.")
        return chosen

    def agent_here(self, agent: OpenClawAgent) -> AgentId:
        """Return the agent of this home that an agent of the source becomes."""
        agents = self.home.config.agents
        name = parse_agent_id(agent.id)
        if name in agents.ids:
            return name
        if agent.is_default and len(self.source.agents) == 1:
            return agents.default_id
        raise UsageError(f"The agent '{name}' is not configured here. Include config, or add it to agents.list.")
