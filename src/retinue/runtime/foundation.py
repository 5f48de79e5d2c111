"""What every command stands on: the home, its configuration and what the plugins registered."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from retinue.config.load import LoadedConfig, load_config
from retinue.config.schema import Config
from retinue.core.clock import Clock, SystemClock
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey, parse_agent_id
from retinue.plugins.registry import Registry, load_registry
from retinue.runtime.discretion import known_secrets
from retinue.security.redaction import Redactor
from retinue.skills.programs import Programs
from retinue.storage.auditlog import AuditLog
from retinue.storage.home import Home


@dataclass(frozen=True)
class Foundation:
    """A home with its configuration, read once. Nothing here changes; a reload makes a new one."""

    home: Home
    loaded: LoadedConfig
    environment: Mapping[str, str]
    registry: Registry
    clock: Clock = field(default_factory=SystemClock)
    programs: Programs = field(default_factory=Programs)

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def durable(self) -> bool:
        """Whether what is kept must survive a power cut, and not only the death of the process."""
        return self.config.session.durability == "power"

    @cached_property
    def plain_config(self) -> Mapping[str, Any]:
        """The configuration as plain data, for gates that name a key."""
        return self.config.model_dump(by_alias=True, exclude_unset=True)

    @cached_property
    def redactor(self) -> Redactor:
        """Takes out of a text every secret at hand, and those that are fetched while the program runs."""
        agents = {DEFAULT_AGENT, *self.config.agents.ids}
        folders = [self.home.agent_dir(agent) for agent in sorted(agents)]
        rules = self.config.logging
        return Redactor(
            known_secrets(self.plain_config, self.environment, folders),
            patterns=rules.redact_patterns,
            shapes=rules.redact_sensitive != "off",
        )

    @cached_property
    def audit(self) -> AuditLog:
        """Where is written down what somebody may want to know later, without secrets."""
        return AuditLog(self.home.audit_log, self.clock, self.redactor.redact, durable=self.durable)

    def agent_id(self, text: str | None) -> AgentId:
        """The agent a person named, or the default one; raises `UsageError` for one that is not there."""
        if text is None:
            return self.config.agents.default_id
        return self.config.agents.resolve(parse_agent_id(text)).id

    def session_key(self, text: str | None, agent: str | None) -> SessionKey:
        """The session a person named: a full key, a name within the agent, or the agent's main one."""
        if text is None:
            return SessionKey.main(self.agent_id(agent))
        key = SessionKey.parse(text, default_agent=self.agent_id(agent))
        self.config.agents.resolve(key.agent)
        return key


def lay_foundation(
    home: Home, *, environment: Mapping[str, str] | None = None, clock: Clock | None = None
) -> Foundation:
    """Read the configuration and ask the plugins; creates nothing on disk."""
    environment = dict(os.environ) if environment is None else environment
    return Foundation(home, load_config(home, environment), environment, load_registry(), clock or SystemClock())
