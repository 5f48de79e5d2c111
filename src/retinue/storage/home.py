"""Where Retinue keeps its state on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId

CONFIG_NAME = "retinue.json"


class Home(Struct, frozen=True):
    """The state folder, `~/.retinue` unless told otherwise, and the places inside it."""

    path: Path
    profile: str | None = None

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_NAME

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    def workspace_of(self, agent: AgentId) -> Path:
        """Where an agent other than the default one lives unless configured otherwise."""
        return self.path / f"workspace-{agent}"

    @property
    def skills(self) -> Path:
        return self.path / "skills"

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
    def log_file(self) -> Path:
        return self.path / "logs" / "retinue.log"

    def agent_dir(self, agent: AgentId) -> Path:
        return self.path / "agents" / agent / "agent"

    def sessions(self, agent: AgentId) -> Path:
        return self.path / "agents" / agent / "sessions"


def locate_home(home: str | None, profile: str | None, environment: Mapping[str, str] | None = None) -> Home:
    """The home that flags and environment ask for: `--home`, `RETINUE_HOME`, else `~/.retinue[-<profile>]`."""
    environment = os.environ if environment is None else environment
    profile = profile or environment.get("RETINUE_PROFILE") or None
    if profile == "default":
        profile = None
    if profile and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile):
        raise UsageError(f"'{profile}' is not a profile name. Use letters, digits, '-' and '_'.")
    chosen = home or environment.get("RETINUE_HOME")
    if chosen:
        return Home(Path(chosen).expanduser().absolute(), profile)
    base = Path(environment.get("HOME") or Path.home())
    return Home(base / (f".retinue-{profile}" if profile else ".retinue"), profile)
