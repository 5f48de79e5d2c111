"""Settings of the system prompt."""

from __future__ import annotations

from retinue.settings import Settings, key


class ContextLimits(Settings):
    """Size limits of single items in the context."""

    memory_get_max_chars: int = key(12_000, ge=1)
    """Maximum characters of one read of a memory file."""
    memory_get_default_lines: int = key(120, ge=1)
    """Default number of lines of one read of a memory file."""
    tool_result_max_chars: int | None = key(None, ge=1)
    """Maximum characters of one tool result. Default: a share of the context window."""
    post_compaction_max_chars: int = key(1_800, ge=0)
    """Maximum characters of AGENTS.md that are repeated after a compaction."""


class Identity(Settings):
    """How the agent presents itself; missing keys are taken from IDENTITY.md."""

    name: str | None = key(None)
    """Display name."""
    emoji: str | None = key(None)
    """An emoji for the agent."""
    creature: str | None = key(None)
    """The character of the agent."""
    vibe: str | None = key(None)
    """The agent's style."""
    theme: str | None = key(None)
    """The colours that the control page uses."""
    avatar: str | None = key(None)
    """A picture: a path in the workspace or a URL."""
