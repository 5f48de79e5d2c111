"""Settings of compaction and pruning."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from retinue.settings import Duration, Settings, key, size_in_bytes

DEFAULT_SECTIONS = ("Session Startup", "Red Lines")
"""The default headings of AGENTS.md that are repeated after a compaction."""


def _check_size(value: int | str | None) -> None:
    if value is not None:
        size_in_bytes(value)


class MemoryFlush(Settings):
    """The silent turn that writes notes before a compaction."""

    enabled: bool = key(True)
    """Whether this turn runs."""
    soft_threshold_tokens: int = key(4_000, ge=0)
    """How many tokens before the compaction it runs."""
    force_flush_transcript_bytes: int | str | None = key("2mb", check=_check_size)
    """The size of the transcript at which it runs at once."""
    model: str | None = key(None)
    """The model for this turn."""
    prompt: str | None = key(None)
    """The prompt."""
    system_prompt: str | None = key(None)
    """Text that is added to the system prompt in this turn."""


class QualityGuard(Settings):
    """The check that a summary must pass."""

    enabled: bool = key(True)
    """Whether summaries are checked."""
    max_retries: int = key(1, ge=0, le=3)
    """How often a rejected summary is generated again."""


class MidTurnPrecheck(Settings):
    """Check of the size between two model calls of a turn."""

    enabled: bool = key(False)
    """Whether history is compacted during a turn that becomes too long, before the provider rejects it."""


class DocsSettings(Settings):
    """Addresses of the documentation and of skills, for the prompt."""

    mirror: str | None = key(None)
    """Address of a copy of the documentation that others can open."""
    registry: str | None = key(None)
    """Address of the registry of skills."""


class CompactionSettings(Settings):
    """Compaction: how old history is replaced by a summary."""

    enabled: bool = key(True)
    """Whether history is compacted automatically."""
    mode: Literal["safeguard", "default"] = key("safeguard")
    """`safeguard` checks each summary and keeps the history if the check fails."""
    model: str | None = key(None)
    """The model for summaries."""
    thinking_level: str = key("low")
    """Reasoning effort for summaries."""
    reserve_tokens: int = key(16_384, ge=0)
    """Tokens of the context window that are reserved."""
    reserve_tokens_floor: int = key(20_000, ge=0)
    """Minimum of `reserveTokens`."""
    keep_recent_tokens: int = key(20_000, ge=0)
    """Tokens of recent history that are kept unchanged."""
    max_history_share: float = key(0.5, gt=0, le=1)
    """Maximum share of the context window for history after a compaction."""
    recent_turns_preserve: int = key(3, ge=0, le=12)
    """Number of turns that are quoted with the summary."""
    quality_guard: QualityGuard = key(QualityGuard)
    """The check that a summary must pass."""
    identifier_policy: Literal["strict", "off", "custom"] = key("strict")
    """Whether a summary must contain the identifiers of the summarised part."""
    identifier_instructions: str | None = key(None)
    """The instruction about identifiers for `custom`."""
    custom_instructions: str | None = key(None)
    """Additional instructions for summaries."""
    timeout_seconds: int = key(180, ge=1)
    """Time limit of a summary."""
    notify_user: bool = key(False)
    """Whether the user is notified."""
    post_compaction_sections: list[str] = key(list(DEFAULT_SECTIONS))
    """Headings of AGENTS.md whose sections are repeated after a compaction."""
    post_index_sync: Literal["off", "async", "await"] = key("async")
    """Whether memory is indexed after a compaction; `async` waits briefly for it, `await` until it is done."""
    max_active_transcript_bytes: int | str | None = key(None, check=_check_size)
    """The size of the transcript at which it is compacted."""
    mid_turn_precheck: MidTurnPrecheck = key(MidTurnPrecheck)
    """Check of the size between two model calls of a turn."""
    memory_flush: MemoryFlush = key(MemoryFlush)
    """The silent turn that writes notes before a compaction."""


class SoftTrim(Settings):
    """How a long tool result is shortened."""

    max_chars: int = key(4_000, ge=0)
    """Length in characters above which a result is shortened."""
    head_chars: int = key(1_500, ge=0)
    """Characters kept at the beginning."""
    tail_chars: int = key(1_500, ge=0)
    """Characters kept at the end."""


class HardClear(Settings):
    """How an old tool result is removed."""

    enabled: bool = key(True)
    """Whether results are removed."""
    placeholder: str = key("[Old tool result content cleared]")
    """The replacement text."""


class PruningTools(Settings):
    """Which tools' results are pruned."""

    allow: list[str] = key([])
    """Only these tools; empty means all."""
    deny: list[str] = key([])
    """Never these tools."""


class ContextPruningSettings(Settings):
    """How old tool results are shortened in what the model sees; the transcript keeps them."""

    mode: Literal["off", "cache-ttl"] = key("off")
    """`cache-ttl` prunes after the provider's cache has expired."""
    ttl: Duration = key(timedelta(minutes=5))
    """Lifetime of the provider's cache."""
    keep_last_assistants: int = key(3, ge=0)
    """Number of last answers whose tool results are never pruned."""
    soft_trim_ratio: float = key(0.3, ge=0, le=1)
    """The share of the context window above which results are shortened."""
    hard_clear_ratio: float = key(0.5, ge=0, le=1)
    """The share of the context window above which results are removed."""
    min_prunable_tool_chars: int = key(50_000, ge=0)
    """Minimum total size of the results, in characters, before any is removed."""
    tools: PruningTools = key(PruningTools)
    """Which tools' results are pruned."""
    soft_trim: SoftTrim = key(SoftTrim)
    """How a long tool result is shortened."""
    hard_clear: HardClear = key(HardClear)
    """How an old tool result is removed."""
