"""Settings of workspaces; the keys are in `agents.defaults`."""

from __future__ import annotations

from typing import Literal

from retinue.settings import Settings, key

TruncationWarning = Literal["off", "once", "always"]
ContextInjection = Literal["always", "continuation-skip", "never"]
OptionalFile = Literal["SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"]
FreshStart = Literal["new", "reset"]


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

    context_injection: ContextInjection = key("always")
    """Which prompts include the files: those of every turn, only the first of a session, or none."""

    startup_context: StartupContextSettings = key(StartupContextSettings)
    """Daily notes for a new session."""
