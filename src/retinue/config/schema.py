"""The whole configuration as one model: each section belongs to the package that reads it."""

from __future__ import annotations

from typing import Any

from retinue.config.sections.agents import AgentsSettings
from retinue.config.sections.automation import CronSettings, HooksSettings
from retinue.config.sections.diagnostics import DiagnosticsSettings
from retinue.config.sections.gateway import EnvSettings, GatewaySettings, LoggingSettings, PluginsSettings
from retinue.config.sections.memory import MemorySettings
from retinue.config.sections.routing import ChannelSettings, CommandsSettings, MessagesSettings
from retinue.config.sections.tools import ToolsSection
from retinue.dispatch.settings import Binding
from retinue.providers.settings import AuthSettings, ModelsSettings
from retinue.sessions.settings import SessionSettings
from retinue.settings import Settings, key
from retinue.skills.settings import SkillsSettings


class Config(Settings):
    """Everything that can be set in `retinue.json`."""

    agents: AgentsSettings = key(AgentsSettings)
    """The agents and what holds for all of them."""
    bindings: tuple[Binding, ...] = key(())
    """Which messages go to which agent."""
    session: SessionSettings = key(SessionSettings)
    """Which conversation a message belongs to, and when one starts over."""
    messages: MessagesSettings = key(MessagesSettings)
    """How messages come and go."""
    commands: CommandsSettings = key(CommandsSettings)
    """Slash commands and who owns the assistant."""
    tools: ToolsSection = key(ToolsSection)
    """Which tools agents have and how far each may go."""
    skills: SkillsSettings = key(SkillsSettings)
    """Which skills the agents may use, and where they come from."""
    memory: MemorySettings = key(MemorySettings)
    """Memory that all agents share settings for."""
    models: ModelsSettings = key(ModelsSettings)
    """Where models come from."""
    auth: AuthSettings = key(AuthSettings)
    """Which credentials are used, and in which order."""
    gateway: GatewaySettings = key(GatewaySettings)
    """The server that clients and channels talk to."""
    cron: CronSettings = key(CronSettings)
    """Jobs that run at set times."""
    hooks: HooksSettings = key(HooksSettings)
    """Hook folders and webhooks."""
    plugins: PluginsSettings = key(PluginsSettings)
    """Plugins: which are used and what they may do."""
    channels: dict[str, ChannelSettings] = key({})
    """Where people talk, under the channel's name."""
    logging: LoggingSettings = key(LoggingSettings)
    """Logging."""
    diagnostics: DiagnosticsSettings = key(DiagnosticsSettings)
    """Diagnostics for other programs."""
    env: EnvSettings = key(EnvSettings)
    """Environment variables for what Retinue runs."""
    browser: dict[str, Any] = key({}, pending=True)
    """The browser that agents drive."""
    approvals: dict[str, Any] = key({}, pending=True)
    """Where approvals are asked for."""
    meta: dict[str, Any] = key({}, pending=True)
    """What OpenClaw wrote about the file itself."""
    wizard: dict[str, Any] = key({}, pending=True)
    """What OpenClaw's set-up remembered."""
