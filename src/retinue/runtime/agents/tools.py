"""The tools of a session and the environment variables of skills, which the commands of a run get."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from anyio import to_thread

from retinue.context.prompt.inputs import BackgroundCommand
from retinue.core.errors import ConfigError, ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ModelInfo
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.runtime.home import Home
from retinue.security.secrets import Secret, Secrets
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import check_variables
from retinue.tools.policy import Layers, decide_tool
from retinue.tools.tool import Tool
from retinue.tools.toolset import Toolset, cap_output, search_tools

log = logging.getLogger(__name__)


async def skill_variables(workspace: AgentWorkspace, secrets: Secrets) -> dict[str, str]:
    """Return the variables of the skills that an agent may use, with their secrets resolved.

    A variable that would change what programs load, run or connect to is refused; one with an unavailable secret is
    omitted.
    """
    wanted = dict(_configured(workspace))
    if not wanted:
        return {}
    return await to_thread.run_sync(_fetch, wanted, secrets)


def _configured(workspace: AgentWorkspace) -> Iterator[tuple[str, Secret]]:
    entries = workspace.home.config.skills.entries
    if not any(entry.env or entry.api_key for entry in entries.values()):
        return
    for judged in workspace.skills():
        entry = entries.get(judged.skill.key) or entries.get(judged.skill.name)
        if entry is None or not judged.gate.eligible:
            continue
        yield from entry.env.items()
        if entry.api_key and judged.skill.primary_env:
            yield judged.skill.primary_env, entry.api_key


def _fetch(wanted: dict[str, Secret], secrets: Secrets) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name, secret in wanted.items():
        try:
            check_variables({name: secret if isinstance(secret, str) else ""})
            variables[name] = secrets.resolve(secret)
        except (ToolFailed, ConfigError) as error:
            log.warning("the variable %s of a skill is omitted: %s", name, error)
    return variables


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
            left = Toolset(
                tool
                for tool in self.toolset.values()
                if not decide_tool(tool.name, layers, owner_only=tool.owner_only).denied
            )
            searching = (tool for tool in search_tools(left) if not decide_tool(tool.name, layers).denied)
            found = self._selected[layers] = (*left.values(), *searching)
        return found

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
