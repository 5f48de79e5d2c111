"""Settings that shape the system prompt."""

from __future__ import annotations

from retinue.settings import Settings, key


class ContextLimits(Settings):
    """How much of one thing may enter the context at once."""

    memory_get_max_chars: int = key(12_000, ge=1)
    """Characters that one read of a memory file may bring."""
    memory_get_default_lines: int = key(120, ge=1)
    """Lines that a read of a memory file brings when none are asked for."""
    tool_result_max_chars: int | None = key(None, ge=1)
    """Characters of one tool result that the model sees; without it, a share of the model's window."""
    post_compaction_max_chars: int = key(1_800, ge=0)
    """Characters of AGENTS.md that are brought back after a compaction."""


class Identity(Settings):
    """Who the agent is to people; what is missing comes from IDENTITY.md."""

    name: str | None = key(None)
    """The name people see."""
    emoji: str | None = key(None)
    """An emoji for the agent."""
    creature: str | None = key(None)
    """What kind of character the agent is."""
    vibe: str | None = key(None)
    """The agent's style."""
    theme: str | None = key(None)
    """The colours that the control page uses."""
    avatar: str | None = key(None)
    """A picture: a path in the workspace or an address."""
