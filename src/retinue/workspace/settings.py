"""What can be configured about an agent's folder; the keys stand in `agents.defaults`."""

from __future__ import annotations

from typing import Literal

from retinue.settings import Settings, key

TruncationWarning = Literal["off", "once", "always"]
ContextInjection = Literal["always", "continuation-skip", "never"]
OptionalFile = Literal["SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"]
FreshStart = Literal["new", "reset"]


class StartupContextSettings(Settings):
    """Which daily notes a fresh session is shown."""

    enabled: bool = key(True)
    """Whether the first message after a bare `/new` or `/reset` brings the latest daily notes along."""

    apply_on: list[FreshStart] = key(["new", "reset"])
    """After which commands."""

    daily_memory_days: int = key(2, ge=1, le=14)
    """How many days, today included."""

    max_file_bytes: int = key(16_384, ge=1, le=65_536)
    """A note larger than this is named instead of quoted."""

    max_file_chars: int = key(1_200, ge=1, le=10_000)
    """How much of the end of one note is quoted."""

    max_total_chars: int = key(2_800, ge=1, le=50_000)
    """How much is quoted of all notes together."""


class WorkspaceSettings(Settings):
    """Where an agent's folder is and how much of it the model reads."""

    workspace: str | None = key(None, reload="restart")
    """The default agent's folder; without it `workspace` in the state folder."""

    skip_bootstrap: bool = key(False)
    """Whether to leave the folder alone: no files are made there and none are put into the prompt."""

    skip_optional_bootstrap_files: list[OptionalFile] = key([])
    """Files that are not made in a new folder and not missed when they are absent."""

    bootstrap_max_chars: int = key(20_000, ge=1)
    """How many characters of one file the prompt takes."""

    bootstrap_total_max_chars: int = key(60_000, ge=1)
    """How many characters of all files together the prompt takes."""

    bootstrap_prompt_truncation_warning: TruncationWarning = key("always")
    """Whether the model is told that a file was shortened: never, once per change, or in every turn."""

    context_injection: ContextInjection = key("always")
    """Whether every turn's prompt has the files, only the first one of a session, or none."""

    startup_context: StartupContextSettings = key(StartupContextSettings)
    """The daily notes that a fresh session begins with."""
