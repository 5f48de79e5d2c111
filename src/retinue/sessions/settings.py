"""The `session` section of the configuration."""

from __future__ import annotations

from typing import Literal

from retinue.settings import Duration, Settings, key

DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
ResetMode = Literal["daily", "idle", "none"]


class ResetSettings(Settings):
    """When a session starts over by itself."""

    mode: ResetMode = key("daily", pending=True)
    """`daily` starts over at `atHour`, `idle` after `idleMinutes` without a message, `none` never."""
    at_hour: int = key(4, pending=True, ge=0, le=23)
    """The local hour at which a day's session ends."""
    idle_minutes: int = key(0, pending=True, ge=0)
    """Minutes of silence after which a session starts over; 0 is off."""


class ResetByTypeSettings(Settings):
    """Reset rules for one kind of chat; they replace the general rule."""

    direct: ResetSettings | None = key(None, pending=True)
    """For chats with one person."""
    dm: ResetSettings | None = key(None, pending=True)
    """The old spelling of `direct`."""
    group: ResetSettings | None = key(None, pending=True)
    """For group chats and channels."""
    thread: ResetSettings | None = key(None, pending=True)
    """For threads and topics."""


class MaintenanceSettings(Settings):
    """How old sessions are tidied away."""

    mode: Literal["enforce", "warn"] = key("enforce", pending=True)
    """`warn` only tells what would be done."""
    prune_after: Duration = key("30d", pending=True, validate_default=True)
    """Sessions without a message for this long are archived."""
    max_entries: int = key(500, pending=True, ge=1)
    """At most this many sessions stay in the index."""
    archive_dashboard_after: Duration = key("7d", pending=True, validate_default=True)
    """Chats of the control page are archived after this long."""
    preserve_recent: Duration | Literal["off"] = key("off", pending=True)
    """Sessions used within this time are never tidied away."""
    max_disk_bytes: int | str = key("10gb", pending=True)
    """How much room transcripts may take."""
    high_water_bytes: int | str = key("80%", pending=True)
    """Tidying stops when transcripts take less than this."""
    reset_archive_retention: Duration | Literal["keep"] = key("keep", pending=True)
    """How long archives made by a reset are kept."""


class SendMatch(Settings):
    """Which sessions a send rule is about; everything given must match."""

    channel: str | None = key(None, pending=True)
    """The channel's name."""
    chat_type: Literal["direct", "group", "channel"] | None = key(None, pending=True)
    """The kind of chat."""
    key_prefix: str | None = key(None, pending=True)
    """How the session key starts, without `agent:<id>:`."""
    raw_key_prefix: str | None = key(None, pending=True)
    """How the whole session key starts."""


class SendRule(Settings):
    """One rule about sending."""

    action: Literal["allow", "deny"] = key("allow", pending=True)
    """What the rule decides."""
    match: SendMatch = key(SendMatch, pending=True)
    """Which sessions it is about."""


class SendPolicySettings(Settings):
    """Whether answers may leave towards a chat."""

    default: Literal["allow", "deny"] = key("allow", pending=True)
    """What holds where no rule matches."""
    rules: tuple[SendRule, ...] = key((), pending=True)
    """The rules; one that denies wins."""


class AgentToAgentSettings(Settings):
    """Conversations between two agents."""

    max_ping_pong_turns: int = key(5, pending=True, ge=0, le=20)
    """How often two agents may answer each other before the exchange ends."""


class SessionSettings(Settings):
    """Sessions: which conversation a message belongs to, and when it starts over."""

    scope: Literal["per-sender", "global"] = key("per-sender", pending=True)
    """`global` puts every message of an agent into one session."""
    main_key: str = key("main", pending=True)
    """Another spelling of the main session's name."""
    dm_scope: DmScope = key("main", pending=True)
    """Which direct chats share a session: all of them, one per person, per channel, or per account."""
    group_scope: Literal["per-group", "main"] = key("per-group", pending=True)
    """Whether each group has its own session."""
    identity_links: dict[str, tuple[str, ...]] = key({}, pending=True)
    """One person under several names: a name of your choice and its `channel:peer` addresses."""
    reset: ResetSettings = key(ResetSettings)
    """When a session starts over by itself."""
    reset_by_type: ResetByTypeSettings = key(ResetByTypeSettings)
    """Other reset rules for a kind of chat."""
    reset_by_channel: dict[str, ResetSettings] = key({}, pending=True)
    """Other reset rules for a channel; they win over those of a kind of chat."""
    reset_triggers: tuple[str, ...] = key(("/new", "/reset"), pending=True)
    """What a person types to start over."""
    idle_minutes: int | None = key(None, pending=True, ge=0)
    """The old spelling of `reset.idleMinutes`."""
    store: str | None = key(None, pending=True)
    """Another place for the index; the original's key."""
    typing_mode: Literal["never", "instant", "thinking", "message"] = key("thinking", pending=True)
    """When a channel shows that an answer is being written."""
    typing_interval_seconds: int = key(6, pending=True, ge=1)
    """How often that sign is repeated."""
    parent_fork_max_tokens: int | None = key(None, pending=True, ge=0)
    """A thread's session starts with its parent's history up to this size."""
    send_policy: SendPolicySettings = key(SendPolicySettings)
    """Whether answers may leave towards a chat."""
    agent_to_agent: AgentToAgentSettings = key(AgentToAgentSettings)
    """Conversations between two agents."""
    maintenance: MaintenanceSettings = key(MaintenanceSettings)
    """How old sessions are tidied away."""
    durability: Literal["process", "power"] = key("process")
    """What a written line survives: a killed process, or also a power cut (slower: each line waits for the disk)."""
