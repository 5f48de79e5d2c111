"""The whole configuration as one struct; each section is declared by the package that reads it."""

from __future__ import annotations

from typing import Any

from retinue.config.sections.agents import AgentsSettings
from retinue.config.sections.automation import BackupSettings, CronSettings, HooksSettings
from retinue.config.sections.gateway import (
    DiagnosticsSettings,
    EnvSettings,
    GatewaySettings,
    LoggingSettings,
    PluginsSettings,
)
from retinue.config.sections.routing import ChannelSettings, CommandsSettings, MessagesSettings
from retinue.config.sections.storage import StorageSettings
from retinue.config.sections.tools import ToolsSection
from retinue.context.settings import DocsSettings
from retinue.dispatch.settings import Binding
from retinue.memory.settings import MemorySettings
from retinue.providers.settings import AuthSettings, ModelsSettings
from retinue.sessions.settings import SessionSettings
from retinue.settings import Settings, key
from retinue.skills.settings import SkillsSettings
from retinue.teams.settings import TeamsSettings
from retinue.toolkit.mcp.settings import McpSettings


class Config(Settings):
    """All keys of `retinue.json`."""

    agents: AgentsSettings = key(AgentsSettings)
    """The agents and their defaults."""
    bindings: tuple[Binding, ...] = key(())
    """Which messages go to which agent."""
    session: SessionSettings = key(SessionSettings)
    """Session scope, resets and maintenance."""
    messages: MessagesSettings = key(MessagesSettings)
    """Queueing, group chats and delivery of messages."""
    commands: CommandsSettings = key(CommandsSettings)
    """Slash commands and the senders that may use them."""
    tools: ToolsSection = key(ToolsSection)
    """Tool policy and settings of the tools."""
    skills: SkillsSettings = key(SkillsSettings)
    """Which skills agents may use, and where they are found."""
    memory: MemorySettings = key(MemorySettings)
    """Memory settings that all agents share."""
    storage: StorageSettings = key(StorageSettings)
    """Where stored data is kept."""
    teams: TeamsSettings = key(TeamsSettings)
    """Members who sign in, with roles."""
    models: ModelsSettings = key(ModelsSettings)
    """Model providers."""
    auth: AuthSettings = key(AuthSettings)
    """Credentials and their order."""
    gateway: GatewaySettings = key(GatewaySettings)
    """The gateway server."""
    cron: CronSettings = key(CronSettings)
    """Scheduled jobs."""
    backup: BackupSettings = key(BackupSettings)
    """Backups that the gateway makes by itself."""
    hooks: HooksSettings = key(HooksSettings)
    """Hook folders and webhooks."""
    plugins: PluginsSettings = key(PluginsSettings)
    """Plugins: which are enabled and what they may do."""
    mcp: McpSettings = key(McpSettings)
    """Servers of the Model Context Protocol."""
    channels: dict[str, ChannelSettings] = key({})
    """Channels, by name."""
    docs: DocsSettings = key(DocsSettings)
    """Addresses of the documentation and of skills, for the prompt."""
    logging: LoggingSettings = key(LoggingSettings)
    """Logging."""
    diagnostics: DiagnosticsSettings = key(DiagnosticsSettings)
    """Diagnostics for other programs."""
    env: EnvSettings = key(EnvSettings)
    """Environment variables of Retinue."""
    browser: dict[str, Any] = key({}, pending="agents have no browser tool yet")
    """The browser that agents control."""
    approvals: dict[str, Any] = key({}, pending="requests are shown wherever the owner is connected")
    """Where approval requests are shown."""
