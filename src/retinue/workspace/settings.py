"""Settings of workspaces, in `agents.defaults`, and the location of each agent's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Struct

from retinue.core.keys import DEFAULT_AGENT, AgentId
from retinue.settings import Settings, key
from retinue.storage.home_paths import HomePaths
from retinue.structs.declare import Parsed

TruncationWarning = Literal["off", "once", "always"]
ContextInjection = Literal["always", "continuation-skip", "never"]
OptionalFile = Literal["SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"]
FreshStart = Literal["new", "reset"]


def _read_pattern(value: object) -> object:
    if isinstance(value, str) and ("/" in value or "\\" in value or not value.strip(". ")):
        raise ValueError(f"'{value}' is not the name of a file; only files in the workspace's top folder can be named")
    return value


FilePattern = Annotated[str, Parsed(_read_pattern)]
"""A name or shell pattern of files in a folder, without a path."""


class StartupContextSettings(Settings):
    """Daily notes for a new session."""

    enabled: bool = key(True)
    """Whether the latest daily notes are added to the first message after `/new` or `/reset` without text."""

    apply_on: list[FreshStart] = key(["new", "reset"])
    """After which commands."""

    daily_memory_days: int = key(2, ge=1, le=14)
    """Number of days, including today."""

    max_file_bytes: int = key(16_384, ge=1, le=65_536)
    """A note larger than this is named instead of quoted."""

    max_file_chars: int = key(1_200, ge=1, le=10_000)
    """Maximum characters quoted from the end of one note."""

    max_total_chars: int = key(2_800, ge=1, le=50_000)
    """Maximum characters quoted of all notes together."""


class CheckpointSettings(Settings):
    """Records of what turns change in the workspace, for `/undo`."""

    enabled: bool = key(True)
    """Whether the files that a turn changes are recorded."""
    max_mb: int = key(500, ge=1)
    """Maximum size of all records in MB; the oldest are removed first."""
    max_file_mb: int = key(10, ge=1)
    """Maximum size of one file; the content of larger ones is not kept."""
    max_age_days: int = key(14, ge=1)
    """How many days a record is kept."""


class WorkspaceSettings(Settings):
    """The location of a workspace and the size of its files in the prompt."""

    workspace: str | None = key(None, reload="restart")
    """The default agent's workspace. Default: `workspace` in the home."""

    skip_bootstrap: bool = key(False)
    """Whether to create no files in the workspace and add none to the prompt."""

    skip_optional_bootstrap_files: list[OptionalFile] = key([])
    """Files that are not created in a new workspace and not reported as missing."""

    bootstrap_max_chars: int = key(20_000, ge=1)
    """Maximum characters of one file in the prompt."""

    bootstrap_total_max_chars: int = key(60_000, ge=1)
    """Maximum characters of all files together in the prompt."""

    bootstrap_prompt_truncation_warning: TruncationWarning = key("always")
    """Whether the model is warned about a shortened file: never, once per change, or in every turn."""

    bootstrap_extra_files: list[FilePattern] = key([])
    """More files of the workspace's top folder in the prompt, as names or patterns such as `TEAM*.md`."""

    context_injection: ContextInjection = key("always")
    """Which prompts include the files: those of every turn, only the first of a session, or none."""

    startup_context: StartupContextSettings = key(StartupContextSettings)
    """Daily notes for a new session."""

    checkpoints: CheckpointSettings = key(CheckpointSettings)
    """Records of what turns change in the workspace, for `/undo`."""


class Placement(Struct, frozen=True):
    """The configuration of one agent's workspace."""

    agent: AgentId
    configured: str | None = None
    is_default: bool = False


def workspace_dir(
    home: HomePaths, agent: AgentId, *, configured: str | None, is_default: bool, default_configured: str | None
) -> Path:
    """Return the agent's `workspace`, else for the default agent that of `agents.defaults`, else a folder in the home.

    A relative path is relative to the home, so that it does not depend on the working directory.
    """
    chosen = (configured or "").strip() or ((default_configured or "").strip() if is_default else None)
    if chosen:
        return (home.path / Path(chosen).expanduser()).absolute()
    return home.workspace if is_default else home.workspace_of(agent)


def list_workspaces(
    home: HomePaths, placements: Sequence[Placement], *, default_configured: str | None
) -> dict[AgentId, Path]:
    """Return every agent's workspace; if no agent is marked as the default, `main` is."""
    if not any(placement.is_default for placement in placements):
        main = next(
            (placement for placement in placements if placement.agent == DEFAULT_AGENT), Placement(DEFAULT_AGENT)
        )
        others = [placement for placement in placements if placement.agent != DEFAULT_AGENT]
        placements = [Placement(main.agent, main.configured, is_default=True), *others]
    return {
        placement.agent: workspace_dir(
            home,
            placement.agent,
            configured=placement.configured,
            is_default=placement.is_default,
            default_configured=default_configured,
        )
        for placement in placements
    }
