"""Settings of how a session's history is kept within the model's window."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from retinue.settings import Duration, Settings, key, size_in_bytes

DEFAULT_SECTIONS = ("Session Startup", "Red Lines")
"""The headings of AGENTS.md that are brought back after a compaction where nothing else is set."""


def _check_size(value: int | str | None) -> None:
    if value is not None:
        size_in_bytes(value)


class MemoryFlush(Settings):
    """The silent turn that writes notes before a compaction."""

    enabled: bool = key(True)
    """Whether there is such a turn."""
    soft_threshold_tokens: int = key(4_000, ge=0)
    """How far before the compaction it happens."""
    force_flush_transcript_bytes: int | str | None = key("2mb", check=_check_size)
    """A transcript of this size makes it happen at once."""
    model: str | None = key(None)
    """Another model for it."""
    prompt: str | None = key(None)
    """What the agent is asked."""
    system_prompt: str | None = key(None)
    """What is added to the system prompt in this turn."""


class QualityGuard(Settings):
    """The check that a summary must pass."""

    enabled: bool = key(True)
    """Whether summaries are checked."""
    max_retries: int = key(1, ge=0, le=3)
    """How often a summary is written anew."""


class MidTurnPrecheck(Settings):
    """A look at the size between two calls of a turn."""

    enabled: bool = key(False)
    """Whether history is summed up in the middle of a turn that gets too long, before the provider refuses it."""


class CompactionSettings(Settings):
    """Compaction: how old history is replaced by a summary."""

    enabled: bool = key(True)
    """Whether history is compacted by itself."""
    mode: Literal["safeguard", "default"] = key("safeguard")
    """`safeguard` checks each summary and keeps the history where it fails."""
    provider: str | None = key(None, pending=True)
    """Another way to compact, from a plugin."""
    model: str | None = key(None)
    """Another model for summaries."""
    thinking_level: str = key("low")
    """How much the model reasons about a summary."""
    reserve_tokens: int = key(16_384, ge=0)
    """Tokens of the window that are kept free."""
    reserve_tokens_floor: int = key(20_000, ge=0)
    """The least that is kept free, whatever `reserveTokens` says."""
    keep_recent_tokens: int = key(20_000, ge=0)
    """Tokens of recent history that stay as they are."""
    max_history_share: float = key(0.5, gt=0, le=1)
    """The share of the window that history may take afterwards."""
    recent_turns_preserve: int = key(3, ge=0, le=12)
    """Turns that are quoted next to the summary."""
    quality_guard: QualityGuard = key(QualityGuard)
    """The check that a summary must pass."""
    identifier_policy: Literal["strict", "off", "custom"] = key("strict")
    """Whether a summary must carry the identifiers of what it sums up."""
    identifier_instructions: str | None = key(None)
    """What `custom` says about identifiers."""
    custom_instructions: str | None = key(None)
    """What a summary should pay attention to."""
    timeout_seconds: int = key(180, ge=1)
    """How long a summary may take."""
    notify_user: bool = key(False)
    """Whether the person is told."""
    post_compaction_sections: list[str] = key(list(DEFAULT_SECTIONS))
    """Headings of AGENTS.md that are brought back afterwards."""
    post_index_sync: Literal["off", "async", "await"] = key("async")
    """Whether memory is indexed afterwards; `async` waits briefly for it, `await` until it is done."""
    truncate_after_compaction: bool = key(False, pending=True)
    """Whether the transcript starts over in a new file."""
    max_active_transcript_bytes: int | str | None = key(None, check=_check_size)
    """A transcript of this size is compacted."""
    mid_turn_precheck: MidTurnPrecheck = key(MidTurnPrecheck)
    """A look at the size between two calls of a turn."""
    memory_flush: MemoryFlush = key(MemoryFlush)
    """The silent turn that writes notes before a compaction."""


class SoftTrim(Settings):
    """How a long tool result is shortened."""

    max_chars: int = key(4_000, ge=0)
    """Results longer than this are shortened."""
    head_chars: int = key(1_500, ge=0)
    """Characters kept of the beginning."""
    tail_chars: int = key(1_500, ge=0)
    """Characters kept of the end."""


class HardClear(Settings):
    """How an old tool result is taken out."""

    enabled: bool = key(True)
    """Whether results are taken out at all."""
    placeholder: str = key("[Old tool result content cleared]")
    """What stands in its place."""


class PruningTools(Settings):
    """Whose results are pruned."""

    allow: list[str] = key([])
    """Only these tools; empty means all."""
    deny: list[str] = key([])
    """Never these tools."""


class ContextPruningSettings(Settings):
    """How old tool results are shortened in what the model sees; the transcript keeps them."""

    mode: Literal["off", "cache-ttl"] = key("off")
    """`cache-ttl` prunes once the provider's cache has run out anyway."""
    ttl: Duration = key(timedelta(minutes=5))
    """How long the provider's cache lasts."""
    keep_last_assistants: int = key(3, ge=0)
    """Answers whose tool results are never touched, counted from the end."""
    soft_trim_ratio: float = key(0.3, ge=0, le=1)
    """The share of the window at which results are shortened."""
    hard_clear_ratio: float = key(0.5, ge=0, le=1)
    """The share of the window at which results are taken out."""
    min_prunable_tool_chars: int = key(50_000, ge=0)
    """Results are taken out only where they are this large together."""
    tools: PruningTools = key(PruningTools)
    """Whose results are pruned."""
    soft_trim: SoftTrim = key(SoftTrim)
    """How a long tool result is shortened."""
    hard_clear: HardClear = key(HardClear)
    """How an old tool result is taken out."""
