"""What people configure about skills: the top-level `skills` section."""

from __future__ import annotations

from typing import Any, Literal

from retinue.security.secret_value import SecretValue
from retinue.settings import Settings, key


class SkillsLoadSettings(Settings):
    """Where skills come from, besides the usual folders."""

    extra_dirs: list[str] = key([])
    """More folders to look for skills in; of all places these count least."""
    allow_symlink_targets: list[str] = key([])
    """Folders that links inside a skills folder may lead to; other links that leave it are refused."""
    watch: bool = key(True)
    """Whether skills that change are read again; else those that were found first stay until the next start."""
    watch_debounce_ms: int = key(250, ge=0)
    """How old a change must be before skills are read again, in milliseconds."""


class SkillsLimits(Settings):
    """How much of what is found is read and shown to the model."""

    max_candidates_per_root: int = key(300, ge=1)
    """How many skill folders are looked at under one root."""
    max_skills_loaded_per_source: int = key(200, ge=1)
    """How many skills one source (such as the workspace) may add."""
    max_skills_in_prompt: int = key(150, ge=0)
    """How many skills the prompt lists."""
    max_skills_prompt_chars: int = key(30_000, ge=0)
    """How many characters the list of skills may take in the prompt."""
    max_skill_file_bytes: int = key(256_000, ge=1)
    """The largest `SKILL.md` that is read, in bytes."""


class SkillsInstallSettings(Settings):
    """How the programs that skills need are installed."""

    prefer_brew: bool = key(True, pending=True)
    """Whether Homebrew comes first where a skill offers several ways."""
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = key("npm", pending=True)
    """Which program installs Node packages."""
    allow_uploaded_archives: bool = key(False, pending=True)
    """Whether clients may upload skills as archives."""


class SkillEntry(Settings):
    """What is configured for one skill."""

    enabled: bool = key(True)
    """Whether the skill may be used."""
    api_key: SecretValue | None = key(None)
    """The key, or a reference to it, for the variable that the skill names as its primary one."""
    env: dict[str, str] = key({})
    """Environment variables for the commands of agents that may use the skill."""
    config: dict[str, Any] = key({})
    """Settings of the skill's own; a skill can require one by its path, as in `skills.entries.<name>.config.<key>`."""


class SkillsSettings(Settings):
    """Which skills the agents may use, and where they come from."""

    allow_bundled: list[str] | None = key(None)
    """The bundled skills that may be used; leave it out to allow all of them."""
    load: SkillsLoadSettings = key(SkillsLoadSettings)
    """Where skills come from, besides the usual folders."""
    limits: SkillsLimits = key(SkillsLimits)
    """How much of what is found is read and shown to the model."""
    install: SkillsInstallSettings = key(SkillsInstallSettings)
    """How the programs that skills need are installed."""
    entries: dict[str, SkillEntry] = key({})
    """Settings per skill, under the skill's name (or its `skillKey`)."""
