"""The tools of a session: made once from what the plugins registered, then narrowed to what it may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retinue.context.prompt.inputs import BackgroundCommand
from retinue.core.clock import random_id
from retinue.core.keys import AgentId, SessionKey
from retinue.core.model import ModelInfo
from retinue.runtime.board import Board
from retinue.runtime.foundation import Foundation
from retinue.runtime.rooms import AgentRoom
from retinue.security.secrets import Secrets
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.running import CommandTable
from retinue.toolkit.search import search_tools
from retinue.tools.tool import Tool
from retinue.tools.toolset import Toolset, cap_output


@dataclass(frozen=True)
class SessionTools:
    """All tools there are, and what each session gets of them."""

    foundation: Foundation
    toolset: Toolset
    commands: CommandTable
    secrets: Secrets

    def for_session(self, room: AgentRoom, session: SessionKey, model: ModelInfo) -> tuple[Tool[Any], ...]:
        """The tools of a session, fixed while it lasts; none for a model that cannot call them."""
        if not model.tools:
            return ()
        rules = self.foundation.config.tools
        own = room.settings.tools
        selected = self._offered(room).select(profile=rules.profile, allow=rules.allow, deny=rules.deny)
        if own.profile or own.allow or own.deny:
            selected = selected.select(profile=own.profile or "full", allow=own.allow, deny=own.deny)
        return (*selected.values(), *search_tools(selected))

    def _offered(self, room: AgentRoom) -> Toolset:
        """All tools there are, without those of a memory that is switched off."""
        return self.toolset if room.settings.memory_search.enabled else self.toolset.select(deny=["group:memory"])

    def cap_for(self, room: AgentRoom, model: ModelInfo) -> Callable[[str], str]:
        """What shortens a tool's result to what the model can take."""
        override = room.settings.context_limits.tool_result_max_chars
        return lambda text: cap_output(text, model.window, override)

    def background(self, agent: AgentId, session: SessionKey) -> tuple[BackgroundCommand, ...]:
        """The commands of a session that still run."""
        return tuple(
            BackgroundCommand(command.id, "running", command.launch.text)
            for command in self.commands.of_agent(agent)
            if command.end is None and command.launch.session == session
        )

    def redact(self, text: str) -> str:
        """The text without the secrets that this process knows."""
        return self.secrets.redactor.redact(text)


def make_tools(foundation: Foundation, commands: CommandTable, board: Board, secrets: Secrets) -> SessionTools:
    """Ask every registered family for its tools."""
    parts = ToolParts(
        settings=foundation.config.tools,
        clock=foundation.clock,
        new_id=random_id,
        commands=commands,
        board=board,
        environment=foundation.environment,
        secrets=secrets,
        notebooks=board.notebook,
    )
    tools = [tool for factory in foundation.registry.tools.values() for tool in factory.make.load()(parts)]
    return SessionTools(foundation, Toolset(tools), commands, secrets)
