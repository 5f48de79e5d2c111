"""The paths of the state folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId

CONFIG_NAME = "retinue.json"


class HomePaths(Struct, frozen=True):
    """The state folder, `~/.retinue` by default, and the paths inside it."""

    path: Path
    profile: str | None = None

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_NAME

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    def workspace_of(self, agent: AgentId) -> Path:
        """Return the default workspace of an agent other than the default agent."""
        return self.path / f"workspace-{agent}"

    @property
    def skills(self) -> Path:
        return self.path / "skills"

    @property
    def plugins(self) -> Path:
        return self.path / "plugins"

    def plugin_data(self, plugin: str) -> Path:
        """Return the folder for the data of a plugin, which stays when the plugin is updated or removed."""
        return self.path / "plugin-data" / plugin

    def checkpoints(self, agent: AgentId) -> Path:
        return self.path / "checkpoints" / agent

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def credentials(self) -> Path:
        return self.path / "credentials"

    @property
    def audit_log(self) -> Path:
        return self.path / "audit.jsonl"

    @property
    def sent_log(self) -> Path:
        return self.path / "outbox-sent.jsonl"

    @property
    def log_file(self) -> Path:
        return self.path / "logs" / "retinue.log"

    def agent_dir(self, agent: AgentId) -> Path:
        return self.path / "agents" / agent / "agent"

    def sessions(self, agent: AgentId) -> Path:
        return self.path / "agents" / agent / "sessions"


def locate_home(home: str | None, profile: str | None, environment: Mapping[str, str] | None = None) -> HomePaths:
    """Return the home that flags and environment select: `--home`, `RETINUE_HOME`, else `~/.retinue[-<profile>]`."""
    environment = os.environ if environment is None else environment
    profile = profile or environment.get("RETINUE_PROFILE") or None
    if profile == "default":
        profile = None
    if profile and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile):
        raise UsageError(f"'{profile}' is not a valid profile name. Use letters, digits, '-' and '_'.")
    chosen = home or environment.get("RETINUE_HOME")
    if chosen:
        return HomePaths(Path(chosen).expanduser().absolute(), profile)
    base = Path(environment.get("HOME") or Path.home())
    return HomePaths(base / (f".retinue-{profile}" if profile else ".retinue"), profile)
