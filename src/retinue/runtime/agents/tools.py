"""The tools of a session: created once from the registrations of plugins, then filtered by the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from retinue.context.prompt.inputs import BackgroundCommand
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ModelInfo
from retinue.runtime.agents.agent import AgentWorkspace
from retinue.runtime.agents.skill_variables import skill_variables
from retinue.runtime.home import Home
from retinue.security.secrets import Secrets
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.command_table import CommandTable
from retinue.tools.policy import Layers, decide_tool
from retinue.tools.tool import Tool
from retinue.tools.toolset import Toolset, cap_output, search_tools


class HomeTools:
    """All tools of a home, and the selection for each session."""

    def __init__(self, home: Home, toolset: Toolset, commands: CommandTable, secrets: Secrets) -> None:
        self.home = home
        self.toolset = toolset
        self.commands = commands
        self.secrets = secrets
        self._selected: dict[Layers, tuple[Tool[Any], ...]] = {}

    def for_session(self, layers: Layers, model: ModelInfo) -> tuple[Tool[Any], ...]:
        """Return the tools of a session, which are fixed for its lifetime; none if the model cannot call tools."""
        if not model.tools:
            return ()
        found = self._selected.get(layers)
        if found is None:
            found = self._selected[layers] = tuple(self._select(layers))
        return found

    def _select(self, layers: Layers) -> Iterator[Tool[Any]]:
        left = Toolset(
            tool
            for tool in self.toolset.values()
            if not decide_tool(tool.name, layers, owner_only=tool.owner_only).denied
        )
        yield from left.values()
        yield from (tool for tool in search_tools(left) if not decide_tool(tool.name, layers).denied)

    def cap_for(self, workspace: AgentWorkspace, model: ModelInfo) -> Callable[[str], str]:
        """Return the function that shortens a tool's result to fit the model's context window."""
        override = workspace.settings.context_limits.tool_result_max_chars
        return lambda text: cap_output(text, model.window, override)

    def background(self, agent: AgentId, session: SessionKey) -> tuple[BackgroundCommand, ...]:
        """Return the background commands of a session."""
        return tuple(
            BackgroundCommand(command.id, "running", command.launch.text)
            for command in self.commands.of_agent(agent)
            if command.end is None and command.launch.session == session
        )

    async def variables(self, workspace: AgentWorkspace) -> dict[str, str]:
        """Return the environment variables of an agent's skills."""
        return await skill_variables(workspace, self.secrets)

    def hide(self, text: str) -> str:
        """Return the text without the exact secrets that this process knows; text that only looks like a key stays."""
        return self.secrets.redactor.hide_exact(text)

    def redact(self, text: str) -> str:
        """Return the text without the secrets that this process knows."""
        return self.secrets.redactor.redact(text)


def make_tools(home: Home, parts: ToolParts) -> HomeTools:
    """Create the tools of every registered family."""
    tools = [tool for factory in home.registry.tools.values() for tool in factory.make.load()(parts)]
    return HomeTools(home, Toolset(tools), parts.commands, parts.secrets)
