"""The `session` section of the configuration."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from retinue.core.envelope import Source
from retinue.settings import Duration, Settings, key, size_in_bytes

DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
GroupScope = Literal["per-group", "main"]
ResetMode = Literal["daily", "idle", "none"]


_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%")


def share_of(value: int | str) -> float | None:
    """Return the fraction for a text such as `80%`; None if it is not a percentage."""
    match = _SHARE.fullmatch(str(value).strip())
    return min(float(match[1]) / 100, 1.0) if match else None


def _check_size_or_share(value: int | str) -> None:
    if share_of(value) is None:
        size_in_bytes(value)


class ResetSettings(Settings):
    """When a session is reset automatically."""

    mode: ResetMode = key("daily")
    """`daily` resets at `atHour`, `idle` after `idleMinutes` without a message, `none` never."""
    at_hour: int = key(4, ge=0, le=23)
    """The local hour of the daily reset."""
    idle_minutes: int = key(0, ge=0)
    """Minutes without a message after which a session is reset; 0 means off."""


class ResetByTypeSettings(Settings):
    """Reset rules for one kind of chat; they replace the general rule."""

    direct: ResetSettings | None = key(None)
    """For chats with one person."""
    dm: ResetSettings | None = key(None)
    """Deprecated name of `direct`."""
    group: ResetSettings | None = key(None)
    """For group chats and channels."""
    thread: ResetSettings | None = key(None)
    """For threads and topics."""


class MaintenanceSettings(Settings):
    """Maintenance of old sessions; the limits apply to each agent separately."""

    mode: Literal["enforce", "warn"] = key("enforce")
    """`warn` only reports what would be done."""
    prune_after: Duration = key(timedelta(days=30))
    """Sessions without a message for this long are archived; an agent's main session never is."""
    max_entries: int = key(500, ge=1)
    """Maximum number of sessions in the index."""
    archive_dashboard_after: Duration = key(timedelta(days=7))
    """Chats of the control page are archived after this long."""
    preserve_recent: Duration | Literal["off"] = key("off")
    """Sessions used within this time, or within the last day, are never archived."""
    max_disk_bytes: int | str = key("10gb", check=size_in_bytes)
    """Maximum disk space of transcripts; above it the oldest archives are deleted."""
    high_water_bytes: int | str = key("80%", check=_check_size_or_share)
    """Deleting stops below this size, or this percentage of `maxDiskBytes`."""
    reset_archive_retention: Duration | Literal["keep"] = key("keep")
    """Retention time of archives made by a reset."""


class SendMatch(Settings):
    """Which sessions a send rule applies to; all given keys must match."""

    channel: str | None = key(None)
    """The channel's name."""
    chat_type: Literal["direct", "group", "channel"] | None = key(None)
    """The kind of chat."""
    key_prefix: str | None = key(None)
    """Prefix of the session key without `agent:<id>:`."""
    raw_key_prefix: str | None = key(None)
    """Prefix of the whole session key."""


class SendRule(Settings):
    """One rule about sending."""

    action: Literal["allow", "deny"] = key("allow")
    """The decision."""
    match: SendMatch = key(SendMatch)
    """Which sessions it applies to."""


class SendPolicySettings(Settings):
    """Whether answers may be sent to a chat."""

    default: Literal["allow", "deny"] = key("allow")
    """The decision if no rule matches."""
    rules: tuple[SendRule, ...] = key(())
    """The rules; a rule that denies overrides the others."""


class AgentToAgentSettings(Settings):
    """Message exchanges between two agents."""

    max_ping_pong_turns: int = key(5, ge=0, le=20)
    """Maximum number of answers in an exchange."""


class Limit(Settings):
    """A budget; a missing key means no limit."""

    usd: float | None = key(None, ge=0)
    """US dollars."""
    tokens: int | None = key(None, ge=0)
    """Input and output tokens."""


class BackgroundLimit(Settings):
    """The daily budget for what nobody waits for; null means no limit."""

    usd: float | None = key(2.0, ge=0)
    """US dollars."""
    tokens: int | None = key(2_000_000, ge=0)
    """Input and output tokens."""


class BudgetSettings(Settings):
    """Budgets of an agent; its turns are refused when one is spent."""

    per_session: Limit = key(Limit)
    """In one conversation."""
    per_day: Limit = key(Limit)
    """From midnight to midnight."""
    per_source: dict[Source, Limit] = key({})
    """From midnight to midnight, for turns of one source: `heartbeat`, `cron`, `hook`, `background`, `chat` …"""
    background: BackgroundLimit = key(BackgroundLimit)
    """From midnight to midnight, for heartbeats, jobs, webhooks, `BOOT.md`, and the sub-agents that these start."""


class SessionSettings(Settings):
    """Session scope, resets and maintenance."""

    scope: Literal["per-sender", "global"] = key("per-sender")
    """`global` puts all messages to an agent into its main session, except those of unknown senders."""
    main_key: str = key("main")
    """Another name of the main session, as `agent:<id>:<mainKey>` or alone."""
    dm_scope: DmScope = key("main")
    """Which direct chats share a session: all, or one per person, channel or account. Never `main` for strangers."""
    group_scope: GroupScope = key("per-group")
    """With `main`, messages of known senders in groups belong to the main session, and the group reads its answers."""
    identity_links: dict[str, tuple[str, ...]] = key({})
    """Links the addresses of one person: a name of your choice and a list of `channel:peer`."""
    reset: ResetSettings = key(ResetSettings)
    """When a session is reset automatically."""
    reset_by_type: ResetByTypeSettings = key(ResetByTypeSettings)
    """Reset rules for a kind of chat."""
    reset_by_channel: dict[str, ResetSettings] = key({})
    """Reset rules for a channel; they override those of a kind of chat."""
    reset_triggers: tuple[str, ...] = key(("/new", "/reset"))
    """Texts that reset a session like `/new` and `/reset`; a text without a slash must be the whole message."""
    idle_minutes: int | None = key(None, ge=0)
    """Deprecated name of `reset.idleMinutes`."""
    typing_mode: Literal["never", "instant", "thinking", "message"] = key("thinking")
    """When a channel shows a typing indicator: at the start of the turn, the first model output or the first text."""
    typing_interval_seconds: int = key(6, ge=1)
    """Interval at which the typing indicator is repeated, in seconds."""
    parent_fork_max_tokens: int = key(100_000, ge=0)
    """Maximum tokens of a conversation that a sub-agent inherits; a longer one is not inherited; 0 means no limit."""
    send_policy: SendPolicySettings = key(SendPolicySettings)
    """Whether answers may be sent to a chat."""
    agent_to_agent: AgentToAgentSettings = key(AgentToAgentSettings)
    """Message exchanges between two agents."""
    maintenance: MaintenanceSettings = key(MaintenanceSettings)
    """Maintenance of old sessions."""
    durability: Literal["process", "power"] = key("process")
    """Durability of a line: survives a killed process, or also a power failure (slower: each line is synced)."""
