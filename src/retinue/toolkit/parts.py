"""The dependencies of tools, which the runtime provides: settings, clock, commands and the services of a home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from retinue.core.clock import Clock, IdFactory
from retinue.core.extension import Extension
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage
from retinue.sandbox.sandboxes import Sandboxes
from retinue.security.secrets import Secrets
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.settings import ToolsSettings
from retinue.tools.shell.allowlist import CommandRuleStore, FixedCommandRules

if TYPE_CHECKING:
    from retinue.sessions.entries import TranscriptEntry
    from retinue.toolkit.cron import JobService
    from retinue.toolkit.gateway import ConfigService
    from retinue.toolkit.mcp.servers import McpServers
    from retinue.toolkit.memory import MemoryAccess
    from retinue.toolkit.message import Messenger
    from retinue.toolkit.owner import OwnerContact
    from retinue.toolkit.sessions import SessionAccess
    from retinue.toolkit.skills import SkillLearning


class SessionStatus(Struct, frozen=True):
    """The state of a session; `window` is the size of the context window and `context` its used part, in tokens."""

    model: str
    usage: Usage
    window: int
    context: int
    notes: tuple[str, ...] = ()


class SessionServices(Protocol):
    """The services of a running home that the tools of a session use."""

    @property
    def reaches_channels(self) -> bool:
        """Whether there is a channel that `messenger` can send to."""
        ...

    @property
    def controls_gateway(self) -> bool:
        """Whether a gateway runs in this process that `config_service` can control."""
        ...

    @property
    def timezone(self) -> str:
        """The user's time zone by its IANA name."""
        ...

    @property
    def clock_style(self) -> str:
        """The `strftime` format of the time of day."""
        ...

    async def status(self, session: SessionKey) -> SessionStatus:
        """Return the state of a session."""
        ...

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        """Set a session's model by reference or alias (None: the default); return its full name.

        Raise `UsageError` with the valid names, or `ConfigError` if there is no such provider.
        """
        ...

    async def session_memory(self, agent: AgentId, session: SessionKey) -> MemoryAccess | None:
        """Return the memory of an agent for one of its sessions; None if the session may not use it."""
        ...

    async def transcript(self, session: SessionKey) -> Sequence[TranscriptEntry]:
        """Return the whole active branch of a session's transcript."""
        ...

    def jobs(self) -> JobService:
        """Return the scheduled jobs of agents."""
        ...

    def session_access(self) -> SessionAccess:
        """Return access to other sessions and agents."""
        ...

    def messenger(self) -> Messenger:
        """Return the sender of messages to channels."""
        ...

    def owner_contact(self) -> OwnerContact:
        """Return the means to reach the owner."""
        ...

    def skill_learning(self) -> SkillLearning:
        """Return the store of proposed skills."""
        ...

    def config_service(self) -> ConfigService:
        """Return access to the part of the configuration that agents may edit."""
        ...


class ToolParts(Struct, frozen=True):
    """The dependencies of tools; one value for all agents of a runtime.

    `environment` is that of this process, of which commands get only allowed variables. Without `sandboxes` commands
    are not sandboxed.
    """

    settings: ToolsSettings
    clock: Clock
    new_id: IdFactory
    commands: CommandTable
    services: SessionServices
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets)
    search_engines: Mapping[str, Extension] = field(default_factory=dict)
    rule_store: CommandRuleStore = field(default_factory=FixedCommandRules)
    sandboxes: Sandboxes | None = None
    mcp: McpServers | None = None
    plugin_config: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the plugin whose tools are made, with its secrets resolved."""
