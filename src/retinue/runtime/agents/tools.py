"""The tools of a session and the environment variables of skills, which the commands of a run get."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from anyio import to_thread

from retinue.context.prompt.inputs import BackgroundCommand
from retinue.core.errors import ConfigError, ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import AssistantMessage, Message, ToolCall
from retinue.core.model import ModelInfo
from retinue.runtime.agents.workspace import AgentWorkspace, user_home
from retinue.runtime.home import Home
from retinue.security.secrets import Secret, Secrets
from retinue.skills.skill import Skill
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import check_variables
from retinue.tools.policy import Layers, decide_tool
from retinue.tools.tool import Tool
from retinue.tools.toolset import Toolset, cap_output, search_tools

log = logging.getLogger(__name__)


OfferedVariables = tuple[re.Pattern[str], Mapping[str, str]]
"""The variables of a skill, and a pattern of texts that name its folder."""


class SkillVariables(Mapping[str, str]):
    """The variables of the skills that a run uses, for the commands of that run.

    A skill is used as soon as its folder is named: by a call that reads its instructions or runs one of its scripts, in
    this run or earlier in the conversation.
    """

    def __init__(self) -> None:
        self._unused: list[OfferedVariables] = []
        self._used: dict[str, str] = {}

    def offer(self, skills: Iterable[OfferedVariables], history: Iterable[Message]) -> None:
        """Set the skills that the run may use, and what was said before it."""
        self._unused = list(skills)
        if self._unused:
            for call in (call for said in history if isinstance(said, AssistantMessage) for call in said.calls):
                self.notice_call(call)

    def notice(self, text: str) -> None:
        """Add the variables of the skills whose folder the text names."""
        for skill in [each for each in self._unused if each[0].search(text)]:
            self._unused.remove(skill)
            self._used |= skill[1]

    def notice_call(self, call: ToolCall) -> None:
        if self._unused:
            self.notice(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))

    def __getitem__(self, name: str) -> str:
        return self._used[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def __len__(self) -> int:
        return len(self._used)


async def offered_variables(
    workspace: AgentWorkspace, secrets: Secrets, *, remote: bool, only: Collection[str] | None = None
) -> tuple[OfferedVariables, ...]:
    """Return the variables of the skills that a run may use, with their secrets resolved.

    A variable that would change what programs load, run or connect to is refused; one with an unavailable secret is
    omitted. `only` names the skills that a group may use.
    """
    wanted = [
        (skill, variables)
        for skill, variables in _configured(workspace)
        if (skill.allow_remote or not remote) and (only is None or skill.name in only)
    ]
    if not wanted:
        return ()
    fetched = await to_thread.run_sync(lambda: [_fetch(variables, secrets) for _, variables in wanted])
    return tuple((_names_of(skill, workspace), found) for (skill, _), found in zip(wanted, fetched, strict=True))


def _configured(workspace: AgentWorkspace) -> Iterator[tuple[Skill, dict[str, Secret]]]:
    entries = workspace.home.config.skills.entries
    if not any(entry.env or entry.api_key for entry in entries.values()):
        return
    for judged in workspace.skills():
        entry = entries.get(judged.skill.key) or entries.get(judged.skill.name)
        if entry is None or not judged.gate.eligible:
            continue
        variables: dict[str, Secret] = dict(entry.env)
        if entry.api_key and judged.skill.primary_env:
            variables[judged.skill.primary_env] = entry.api_key
        if variables:
            yield judged.skill, variables


def _names_of(skill: Skill, workspace: AgentWorkspace) -> re.Pattern[str]:
    """Return a pattern for the folder of a skill: as a whole path, below `~`, or below the workspace."""
    names = [str(skill.folder)]
    for base, short in ((user_home(workspace.home), "~/"), (workspace.root.path, "")):
        if skill.folder.is_relative_to(base):
            names.append(f"{short}{skill.folder.relative_to(base)}")
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w.-])")


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

    def replace(self, toolset: Toolset) -> None:
        """Use other tools from the next turn on, because a server offers others."""
        self.toolset = toolset
        self._selected = {}

    def for_session(self, layers: Layers, model: ModelInfo) -> tuple[Tool[Any], ...]:
        """Return the tools of a session, which stay the same until `replace`; none if the model cannot call tools."""
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

    async def offered_variables(
        self, workspace: AgentWorkspace, *, remote: bool, only: Collection[str] | None = None
    ) -> tuple[OfferedVariables, ...]:
        """Return the environment variables of the skills that a run may use."""
        return await offered_variables(workspace, self.secrets, remote=remote, only=only)

    def hide(self, text: str) -> str:
        """Return the text without the exact secrets that this process knows; text that only looks like a key stays."""
        return self.secrets.redactor.hide_exact(text)

    def redact(self, text: str) -> str:
        """Return the text without the secrets that this process knows."""
        return self.secrets.redactor.redact(text)
