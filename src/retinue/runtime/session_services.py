"""The services that tools use: session facts, memory, jobs, other sessions, channels and configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from msgspec.structs import replace

from retinue.core.clock import clock_style, random_id
from retinue.core.extension import Extension, ExtensionPoint
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage
from retinue.plugins.builtin import BUILT_IN_NAMES
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.prompting import default_timezone
from retinue.runtime.agents.tools import HomeTools
from retinue.runtime.channels.routing import reachable
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.turns.sessions import Sessions
from retinue.security.secrets import Secrets
from retinue.sessions.entries import ModelChanged, TranscriptEntry
from retinue.toolkit.cron import JobService
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.memory import MemoryAccess
from retinue.toolkit.parts import SessionStatus, ToolParts
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.sessions import SessionAccess
from retinue.tools.policy import ALIASES, TOOL_CALL, TOOL_SEARCH
from retinue.tools.shell.allowlist import CommandRuleStore
from retinue.tools.tool import Tool
from retinue.tools.toolset import Toolset

if TYPE_CHECKING:
    from retinue.toolkit.gateway import ConfigService
    from retinue.toolkit.message import Messenger
    from retinue.toolkit.owner import OwnerContact
    from retinue.toolkit.skills import SkillLearning


TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
RESERVED_NAMES = frozenset({*ALIASES, TOOL_CALL, TOOL_SEARCH})


class HomeSessionServices:
    """The services of a running home as the tools of its sessions use them."""

    def __init__(
        self, find_dispatcher: Callable[[], Dispatcher], *, reaches_channels: bool, controls_gateway: bool
    ) -> None:
        """`find_dispatcher` is called when a tool runs; tools can be made and listed without one."""
        self.reaches_channels = reaches_channels
        self.controls_gateway = controls_gateway
        self._find_dispatcher = find_dispatcher

    @property
    def _sessions(self) -> Sessions:
        return self._find_dispatcher().sessions

    @property
    def timezone(self) -> str:
        return default_timezone(self._sessions.home)

    @property
    def clock_style(self) -> str:
        home = self._sessions.home
        return clock_style(home.config.agents.defaults.time_format, home.environment)

    async def status(self, session: SessionKey) -> SessionStatus:
        parts = self._sessions.agent(session.agent)
        found = parts.store.peek(session)
        choice = await parts.access.choose(found.model if found else None)
        return SessionStatus(
            model=str(choice.ref) if choice else "none",
            usage=found.usage if found else Usage(),
            window=parts.access.info(choice.ref).window if choice else 0,
            context=found.context_tokens if found else 0,
        )

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        parts = self._sessions.agent(session.agent)
        ref = parts.access.resolve(model) if model else None
        if ref is not None:
            parts.access.providers.endpoint(ref.provider)
        parts.store.open(session).append(ModelChanged(ref))
        choice = await parts.access.choose(ref)
        return str(choice.ref) if choice else "none"

    async def session_memory(self, agent: AgentId, session: SessionKey) -> MemoryAccess | None:
        """Return an agent's memory as one of its sessions may use it."""
        sessions = self._sessions
        return await sessions.shared.memories.session_memory(sessions.agent(agent).workspace, session)

    async def transcript(self, session: SessionKey) -> Sequence[TranscriptEntry]:
        """Return the whole active branch of a session's transcript."""
        store = self._sessions.agent(session.agent).store
        found = store.find(session)
        if found is None:
            return ()
        _, tree = await anyio.to_thread.run_sync(store.read, found.id)
        return tree.path

    def jobs(self) -> JobService:
        """Return the jobs that agents may create."""
        from retinue.automation.jobs import JobStore
        from retinue.runtime.automation.jobs import AgentJobs

        sessions = self._sessions
        return AgentJobs(sessions.home, JobStore(sessions.services.job_database, sessions.home.clock, random_id))

    def session_access(self) -> SessionAccess:
        """Return the other sessions and agents of the home."""
        from retinue.runtime.subagents.session_tools import HomeSessionTools

        return HomeSessionTools(self._sessions, self._find_dispatcher())

    def messenger(self) -> Messenger:
        """Return the sender of messages to chats of channels."""
        from retinue.runtime.channels.send import ChatMessageSender

        return ChatMessageSender(self._sessions)

    def owner_contact(self) -> OwnerContact:
        """Return the means to reach the owner."""
        from retinue.runtime.automation.webhooks import OwnerNotices

        return OwnerNotices(self._sessions)

    def skill_learning(self) -> SkillLearning:
        """Return the store of proposed skills."""
        from retinue.runtime.agents.learning import HomeSkillLearning

        return HomeSkillLearning(self._sessions.home)

    def config_service(self) -> ConfigService:
        """Return the configuration as agents may change it."""
        from retinue.runtime.commands.config import ConfigTool

        return ConfigTool(self._sessions.home, self._sessions.gateway)


def make_home_tools(
    home: Home,
    find_dispatcher: Callable[[], Dispatcher],
    commands: CommandTable,
    secrets: Secrets,
    rule_store: CommandRuleStore,
    *,
    mcp: McpServers | None,
    controls_gateway: bool,
) -> HomeTools:
    """Create the tools of every registered family; `find_dispatcher` is called when a tool runs."""
    services = HomeSessionServices(
        find_dispatcher, reaches_channels=bool(reachable(home)), controls_gateway=controls_gateway
    )
    parts = ToolParts(
        settings=home.config.tools,
        clock=home.clock,
        new_id=random_id,
        commands=commands,
        services=services,
        environment=home.environment,
        secrets=secrets,
        rule_store=rule_store,
        sandboxes=make_sandboxes(home),
        mcp=mcp,
        search_engines=home.registry.extensions[ExtensionPoint.SEARCH_ENGINES],
    )
    return HomeTools(home, Toolset(_make_tools(home, parts)), commands, secrets)


def _make_tools(home: Home, parts: ToolParts) -> list[Tool[Any]]:
    """Make the tools of every family; a plugin whose tools cannot be made or have taken names is switched off."""
    made: dict[str, Tool[Any]] = {}
    for extension in tuple(home.registry.tools.values()):
        if extension.plugin in BUILT_IN_NAMES:
            made |= {tool.name: tool for tool in extension.make.load()(parts)}
            continue
        if extension.name not in home.registry.tools:
            continue  # an earlier family of the same plugin failed
        try:
            tools = call_contained(partial(_make_plugin_tools, home, extension, parts))
            check_tools(tools, made)
        except PluginError as error:
            made = {name: tool for name, tool in made.items() if tool.plugin != extension.plugin}
            home.registry.switch_off(extension.plugin, f"its tools '{extension.name}' cannot be used: {error}")
            continue
        made |= {tool.name: tool for tool in tools}
    return [*made.values()]


def _make_plugin_tools(home: Home, extension: Extension, parts: ToolParts) -> tuple[Tool[Any], ...]:
    config = home.plugin_config(extension.plugin, parts.secrets)
    made = extension.make.load()(replace(parts, plugin_config=config))
    if not isinstance(made, (tuple, list)) or not all(isinstance(tool, Tool) for tool in made):
        raise PluginError(f"{extension.make.target} did not return a tuple of tools")
    metadata = partial(home.registry.metadata_of, extension.plugin)
    return tuple(
        replace(tool, plugin=extension.plugin, read_only=tool.read_only or not metadata(tool.name).has_effects)
        for tool in made
    )


def check_tools(tools: Iterable[Tool[Any]], taken: Container[str]) -> None:
    """Raise `PluginError` if a tool of a plugin has a name that is taken or a schema that cannot be made."""
    names: set[str] = set()
    for tool in tools:
        if not TOOL_NAME.fullmatch(tool.name):
            raise PluginError(f"'{tool.name}' is not a name for a tool; use letters, digits, '_' and '-'")
        if tool.name in taken or tool.name in names or tool.name in RESERVED_NAMES:
            raise PluginError(f"there is already a tool called '{tool.name}'")
        names.add(tool.name)
        if not isinstance(tool.spec.parameters, Mapping):
            raise PluginError(f"the schema of '{tool.name}' is not an object")
