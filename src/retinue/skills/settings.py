"""Settings of skills: the top-level `skills` section."""

from __future__ import annotations

from typing import Any, Literal

from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key


class SkillsLoadSettings(Settings):
    """Additional sources of skills."""

    extra_dirs: list[str] = key([])
    """Additional folders of skills, with the lowest precedence."""
    allow_symlink_targets: list[str] = key([])
    """Folders that links inside a skills folder may point to; other links that leave it are refused."""
    watch: bool = key(True)
    """Whether changed skills are read again; otherwise the skills found first are used until the next start."""
    watch_debounce_ms: int = key(250, ge=0)
    """The minimum age of a change before skills are read again, in milliseconds."""


class SkillsLimits(Settings):
    """Limits for reading skills and listing them in the prompt."""

    max_candidates_per_root: int = key(300, ge=1)
    """Maximum number of skill folders searched under one root."""
    max_skills_loaded_per_source: int = key(200, ge=1)
    """Maximum number of skills from one source (such as the workspace)."""
    max_skills_in_prompt: int = key(150, ge=0)
    """Maximum number of skills in the prompt."""
    max_skills_prompt_chars: int = key(30_000, ge=0)
    """Maximum number of characters of the list of skills in the prompt."""
    max_skill_file_bytes: int = key(256_000, ge=1)
    """Maximum size of a `SKILL.md`, in bytes."""


class SkillEntry(Settings):
    """Settings of one skill."""

    enabled: bool = key(True)
    """Whether the skill may be used."""
    api_key: SecretValue | None = key(None)
    """The key, or a reference to it, for the variable that the skill declares as `primaryEnv`."""
    env: dict[str, str] = key({})
    """Environment variables for the commands of agents that may use the skill."""
    config: dict[str, Any] = key({})
    """Settings defined by the skill; a skill can require one by its path, as in `skills.entries.<name>.config.<key>`.
    """


class SkillsSettings(Settings):
    """Which skills the agents may use, and their sources."""

    registry: str = key("https://clawhub.ai")
    """The site of the registry that skills are installed from, or the registry itself. The variable `CLAWHUB_REGISTRY`
    overrides the default."""
    review: Literal["foreign", "all"] = key("foreign")
    """Which new or changed skills are off until the owner accepts them: `foreign` means those of a project, a registry,
    a Git repository or an archive, and every skill that was accepted before; `all` also means new skills in the
    workspace, in `~/.agents/skills` and in the home."""
    allow_bundled: list[str] | None = key(None)
    """The bundled skills that may be used. Default: all of them."""
    load: SkillsLoadSettings = key(SkillsLoadSettings)
    """Additional sources of skills."""
    limits: SkillsLimits = key(SkillsLimits)
    """Limits for reading skills and listing them in the prompt."""
    entries: dict[str, SkillEntry] = key({})
    """Settings per skill, under the skill's name (or its `skillKey`)."""
